// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "base/options.hpp"
#include "driver/driver.hpp"
#include "engine/device_stores.hpp"
#include "engine/ending_contexts.hpp"
#include "engine/hook_coverage.hpp"
#include "engine/scheduling.hpp"
#include "engine/serving.hpp"
#include "engine/time_lease.hpp"
#include "engine/watch.hpp"
#include "resize/resizables.hpp"
#include "stream/legacy_barrier.hpp"
#include "stream/per_thread_use.hpp"
#include "stream/submission_epoch.hpp"

namespace cuvmm {

class Control;
class Tenancy;

// What runs behind the hooks: one per process. Made at the program's first driver call, never
// destroyed; a forked child gets one of its own when it first calls.
class Engine {
 public:
  // nullptr where no driver can be had, and to what runs while the engine is being made: then the
  // driver is to be called as if we were not there. Takes no lock, since it may be reached from a
  // library's constructor while the loader holds its own.
  static Engine* get() {
    Engine* engine = current_.load(std::memory_order_acquire);
    return engine != nullptr ? engine : start();
  }
  // The engine, where there is one already. Starts nothing.
  static Engine* running() { return current_.load(std::memory_order_acquire); }

  const Driver& driver() const { return driver_; }
  const Options& options() const { return options_; }
  Mode mode() const { return options_.mode; }

  // False in VMM_MODE=OFF: every call goes to the driver as if we were not there.
  bool is_on() const { return options_.mode != Mode::Off; }

  // Every call of the program that the driver is about to see. What the program is answered
  // instead, where that is not CUDA_SUCCESS.
  CUresult before(const CallSite& site) { return watch_.before(site); }
  Watch& watch() { return watch_; }

  // What serves the program's memory; nullptr where the driver does.
  Serving* serving() const { return serving_.get(); }
  // By which the process is paused; nullptr where its memory is the driver's.
  Control* control() const { return control_.get(); }
  // At the end of the process: nothing is done for other programs any more.
  void leave_node();
  // Physical memory for those who map it themselves.
  DeviceStores& stores() { return stores_; }
  // Every call that could touch memory or work passes the first, from its beginning to its end;
  // those that give the device work pass the gate as well.
  CallBarrier& calls() { return calls_; }
  // Never shut: for calls that do not wait in a pause, and look at pools or contexts of ours.
  CallBarrier& questions() { return questions_; }
  Gate& gate() { return gate_; }
  // Whether and how the clients' calls are put in order.
  Scheduling& scheduling() { return scheduling_; }
  Captures& captures() { return captures_; }
  // Whether and when calls wait for other processes.
  TimeLease& time_lease() { return time_lease_; }

  // Left by every call that submits, once the driver has answered it.
  SubmissionEpoch& submission_epoch() { return submission_epoch_; }
  // Told of the same calls, by the stream that each was for.
  LegacyBarrier& legacy_barrier() { return legacy_barrier_; }
  // Before every call that gives a thread's own default stream work.
  PerThreadUse& per_thread_use() { return per_thread_use_; }

  // Those that are being destroyed.
  EndingContexts& ending_contexts() { return ending_contexts_; }

  // What the program resizes where it lies (capi).
  Resizables& resizables() { return resizables_; }

  // Whether any of these addresses is reserved for memory of ours.
  static bool has_reserved(CUdeviceptr address, Size size);

  // False once the program has called what none of our lists knows.
  bool sees_everything() const { return hook_coverage().is_whole(); }

 private:
  Engine(const Driver& driver, Options options);
  ~Engine();
  static Engine* start();
  static Engine* make();
  void set_up();
  static Engine* wait_for_start();
  static void forget_in_children();
  static void forget_after_fork();

  static std::atomic<Engine*> current_;
  static std::atomic<Engine*> starting_;  // set up, but not yet current

  const Driver driver_;    // immutable after construction
  const Options options_;  // immutable after construction
  Watch watch_;
  SubmissionEpoch submission_epoch_;
  LegacyBarrier legacy_barrier_;
  CallBarrier calls_{CallBarrier::Of::Calls};
  CallBarrier questions_{CallBarrier::Of::Questions};
  Gate gate_;
  PerThreadUse per_thread_use_;
  Captures captures_;
  EndingContexts ending_contexts_;
  Scheduling scheduling_;
  TimeLease time_lease_{{driver_, watch_, calls_, captures_, legacy_barrier_}};
  const std::unique_ptr<Tenancy> tenancy_;  // leases what is served
  const std::unique_ptr<Serving> serving_;
  const std::unique_ptr<Control> control_;
  DeviceStores stores_;
  Resizables resizables_;
};

// Where the engine finds the driver. The hooks set both before the program can reach it.
struct DriverSource {
  // The real dlopen and dlsym, past any hook of ours.
  LoaderDoors doors = LoaderDoors::of_the_system();
  // The library that the program itself opened, where that is known.
  std::atomic<const char*> path{"libcuda.so.1"};
};
DriverSource& driver_source();

}  // namespace cuvmm
