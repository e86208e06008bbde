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

namespace share {
struct Token;
}
class Control;
class Tenancy;

// The per-process core behind the hooks. Created at the program's first driver call and never
// destroyed; a forked child creates its own at its first call.
class Engine {
 public:
  // Returns nullptr if no driver loads, and during engine construction; then call the driver
  // directly, as if cuvmm were absent. Takes no lock, since a library's constructor may call it
  // while the loader holds its own lock.
  static Engine* get() {
    Engine* engine = current_.load(std::memory_order_acquire);
    return engine != nullptr ? engine : start();
  }
  // Returns the engine if it already exists. Starts nothing.
  static Engine* running() { return current_.load(std::memory_order_acquire); }

  const Driver& driver() const { return driver_; }
  const Options& options() const { return options_; }
  Mode mode() const { return options_.mode; }

  // False with VMM_MODE=OFF: every call goes straight to the driver.
  bool is_on() const { return options_.mode != Mode::Off; }

  // Call before passing any program call to the driver. If the result is not CUDA_SUCCESS, return
  // it to the program instead.
  [[gnu::always_inline]] CUresult before(const CallSite& site) { return watch_.before(site); }
  Watch& watch() { return watch_; }

  // Serves the program's memory; nullptr if the driver does.
  Serving* serving() const { return serving_.get(); }
  // Pauses the process; nullptr if the driver serves its memory.
  Control* control() const { return control_.get(); }
  // For the end of the process: stops serving other programs' requests.
  void leave_node();
  // Tells the node service that this process shares memory or an event: it has exported it under
  // that handle, granted it with that token, or opened it from another process. Does not wait for
  // the service.
  void shares(const CUipcMemHandle& handle);
  void shares(const CUipcEventHandle& handle);
  void shares(const share::Token& token);
  // Physical memory for subsystems that map it themselves.
  DeviceStores& stores() { return stores_; }
  // Every call that could touch memory or work holds a pass of calls() from start to end; calls
  // that submit device work hold a pass of the gate as well.
  CallBarrier& calls() { return calls_; }
  // Never closed: for calls that do not wait during a pause but read cuvmm's pools or contexts.
  CallBarrier& questions() { return questions_; }
  // Never closed: every call that does not wait during a pause holds a pass of it, so that cuvmm
  // notices when the driver blocks one.
  CallBarrier& forwarded() { return forwarded_; }
  Gate& gate() { return gate_; }
  // Whether and how the scheduler orders clients' calls.
  Scheduling& scheduling() { return scheduling_; }
  Captures& captures() { return captures_; }
  // Whether and when calls wait for other processes.
  TimeLease& time_lease() { return time_lease_; }

  // Every call that submits leaves a note, after the driver's answer.
  SubmissionEpoch& submission_epoch() { return submission_epoch_; }
  // Notified of the same calls, by stream.
  LegacyBarrier& legacy_barrier() { return legacy_barrier_; }
  // Notified before every call that submits work to a per-thread default stream.
  PerThreadUse& per_thread_use() { return per_thread_use_; }

  // Contexts that are being destroyed.
  EndingContexts& ending_contexts() { return ending_contexts_; }

  // Allocations that the program resizes in place (C API).
  Resizables& resizables() { return resizables_; }

  // Whether cuvmm has reserved any of these addresses.
  static bool has_reserved(CUdeviceptr address, Size size);

  // False once the program has called a function that is on neither list (hook_coverage.hpp).
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
  static std::atomic<Engine*> starting_;  // being set up, or current
  static Engine* left_;                   // by parents, the newest first
  Engine* left_before_ = nullptr;

  const Driver driver_;    // immutable after construction
  const Options options_;  // immutable after construction
  Watch watch_;
  SubmissionEpoch submission_epoch_;
  LegacyBarrier legacy_barrier_;
  CallBarrier calls_{CallBarrier::Of::Calls};
  CallBarrier questions_{CallBarrier::Of::Questions};
  CallBarrier forwarded_{CallBarrier::Of::Forwarded};
  Gate gate_;
  PerThreadUse per_thread_use_;
  Captures captures_{[] { return hook_coverage().is_whole(); }};
  EndingContexts ending_contexts_;
  Scheduling scheduling_;
  TimeLease time_lease_{{driver_, watch_, calls_, captures_, legacy_barrier_}};
  const std::unique_ptr<Tenancy> tenancy_;  // leases memory to serving_
  const std::unique_ptr<Serving> serving_;
  const std::unique_ptr<Control> control_;
  DeviceStores stores_;
  Resizables resizables_;
};

// Where the engine finds the driver. The hooks set both members before the program can reach it.
struct DriverSource {
  // The real dlopen and dlsym, bypassing cuvmm's hooks.
  LoaderDoors doors = LoaderDoors::of_the_system();
  // The library that the program itself opened, if known.
  std::atomic<const char*> path{"libcuda.so.1"};
};
DriverSource& driver_source();

}  // namespace cuvmm
