// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/queued_frees.hpp"
#include "sched/event_marks.hpp"
#include "sched/kept_bytes.hpp"
#include "sched/kernel_facts.hpp"
#include "sched/scheduler.hpp"
#include "stream/stream_table.hpp"

namespace cuvmm {

// Scheduling in this process: off until somebody asks for it, and then on or off as he likes.
class Scheduling {
 public:
  // All that there is once it was on. Never destroyed, since threads may be in the middle of it.
  struct Parts {
    Parts(const Driver& driver, const Captures& captures, const ScheduleSettings& settings);

    StreamTable streams;
    EventMarks marks;
    KnownKernels kernels;
    QueuedFrees queued_frees;
    Scheduler scheduler;
  };

  Scheduling(const Driver& driver, const Captures& captures, const Options& options)
      : driver_(driver), captures_(captures), options_(options) {}

  // Asked by every call of the program.
  bool is_on() const { return on_.load(std::memory_order_acquire); }
  // Where it was on once; else nullptr.
  Parts* parts() const { return parts_.load(std::memory_order_acquire); }

  // The same, made where they are not there.
  Parts& ready_parts();

  // Traces have it by its name.
  Client& create_client(std::string name, int priority, int weight);

  // As the process was told: by a policy, and as one client where that has a name.
  void start_as_asked();
  // Off: all that was taken has been issued when it returns.
  void set_policy(Schedule policy);
  Schedule policy() const;
  // A function is called of which nothing is known: it is to come after all that was taken, and
  // from here on nothing is taken any more.
  void end_for_good();

  // All that has been taken so far has been issued when it returns true; false where that was not
  // so by now_ns() `until`.
  bool settle_all(std::uint64_t until) {
    Parts* const known = parts();
    return known == nullptr || known->scheduler.settle_all(until);
  }

  // Graphs record events of the program or wait for them, whenever they are launched.
  void graphs_use_events() { graphs_use_events_.store(true, std::memory_order_release); }
  bool do_graphs_use_events() const { return graphs_use_events_.load(std::memory_order_acquire); }

  // What ends, is forgotten; whether scheduling is on or not. Before the driver hears of it, since
  // afterwards another thread may have the handle.
  void stream_ends(CUstream stream);
  void event_ends(CUevent event);
  void context_ends(CUcontext context);
  void context_stays(CUcontext context);  // it was refused, or was not the last release
  void context_ended(CUcontext context);

  // At the process' end, and in a child: see Scheduler::park.
  void park();

 private:
  const Driver& driver_;
  const Captures& captures_;
  const Options& options_;
  std::atomic<bool> on_{false};
  std::atomic<bool> has_ended_{false};
  std::atomic<bool> graphs_use_events_{false};
  std::atomic<Parts*> parts_{nullptr};
};

}  // namespace cuvmm
