// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/queued_frees.hpp"
#include "sched/event_marks.hpp"
#include "sched/kept_bytes.hpp"
#include "sched/kernel_facts.hpp"
#include "sched/scheduler.hpp"
#include "stream/stream_table.hpp"

namespace cuvmm {

// Scheduling in this process: off until requested; can be switched on and off later.
class Scheduling {
 public:
  // Everything that scheduling needs. Never destroyed, since threads may be inside it.
  struct Parts {
    Parts(const Driver& driver, const Captures& captures, LegacyBarrier& legacy,
          const ScheduleSettings& settings);

    StreamTable streams;
    EventMarks marks;
    KnownKernels kernels;
    QueuedFrees queued_frees;
    Scheduler scheduler;
  };

  Scheduling(const Driver& driver, const Captures& captures, LegacyBarrier& legacy,
             const Options& options)
      : driver_(driver), captures_(captures), legacy_(legacy), options_(options) {}

  // Checked by every call of the program.
  bool is_on() const { return on_.load(std::memory_order_acquire); }
  // nullptr unless scheduling was on at some time.
  Parts* parts() const { return parts_.load(std::memory_order_acquire); }

  // The same, created on first use.
  Parts& ready_parts();

  // The name appears in traces.
  Client& create_client(std::string name, int priority, int weight);

  // Applies the process's options: a policy, and a client name if there is one.
  void start_as_asked();
  // When switching off, everything queued has been issued on return.
  void set_policy(Schedule policy);
  Schedule policy() const;
  // Call when the program calls an unknown function: it must come after everything queued.
  // Scheduling stays off from then on.
  void disable_permanently();

  // Returns true once everything queued so far has been issued, false if now_ns() reaches `until`
  // first.
  bool settle_all(std::uint64_t until) {
    Parts* const known = parts();
    return known == nullptr || known->scheduler.settle_all(until);
  }

  // Graphs record or wait for the program's events whenever they are launched.
  void graphs_use_events() { graphs_use_events_.store(true, std::memory_order_release); }
  bool do_graphs_use_events() const { return graphs_use_events_.load(std::memory_order_acquire); }

  // Call after the driver has created the stream.
  void stream_began(CUstream stream);
  // Forgets a handle, whether scheduling is on or not. Call before the driver destroys it, since
  // another thread may get the same handle afterwards.
  void stream_ends(CUstream stream);
  void event_ends(CUevent event);
  // Call once another process may use the event, whether scheduling is on or not.
  void event_is_shared(CUevent event);
  void context_ends(CUcontext context);
  void context_stays(CUcontext context);  // the driver refused, or it was not the last release
  void context_ended(CUcontext context);

  // For the end of the process, and for a child; see Scheduler::park.
  void park();

 private:
  const Driver& driver_;
  const Captures& captures_;
  LegacyBarrier& legacy_;
  const Options& options_;
  std::atomic<bool> on_{false};
  std::atomic<bool> has_ended_{false};
  std::atomic<bool> graphs_use_events_{false};
  std::atomic<Parts*> parts_{nullptr};
};

}  // namespace cuvmm
