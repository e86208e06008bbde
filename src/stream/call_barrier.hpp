// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <sys/types.h>

#include "driver/calls.hpp"
#include "trace/futex.hpp"

namespace cuvmm {

// Held shut it keeps threads out, and tells when the last one that had passed has come out again.
// Passing costs a thread two stores of its own; shutting is what pays.
class CallBarrier {
 public:
  // A thread can have passed one of each at the same time. The threshold of Questions is never
  // shut: it only tells a GracePeriod that the thread is inside.
  enum class Of : std::uint8_t { Calls, Work, Questions };
  static constexpr std::size_t kinds = 3;

  explicit CallBarrier(Of which);
  CallBarrier(const CallBarrier&) = delete;
  CallBarrier& operator=(const CallBarrier&) = delete;

  class Pass {
   public:
    explicit Pass(CallBarrier& threshold) : steps_(threshold.enter()) {}
    // Notes the call, so that somebody_inside() can name it.
    Pass(CallBarrier& threshold, Call call) : Pass(threshold) {
      if (steps_ != nullptr) mine_->call.store(call, std::memory_order_relaxed);
    }
    ~Pass() {
      if (steps_ != nullptr) step(*steps_, std::memory_order_release);
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    std::atomic<std::uint32_t>* const steps_;  // nullptr: an earlier pass of the thread tells
  };

  enum class Exempt : std::uint8_t { Nobody, ThisThread };
  // Nobody passes until open(), but for the thread that is exempt. Waits for those who have passed
  // already; false, and open again, where they have not come out when now_ns() is `until`. By one
  // at a time; any thread may open it.
  bool shut(std::uint64_t until, Exempt exempt);
  // The two halves of shut(), for callers that do something else while they wait. begin_shut()
  // returns false, and leaves it open, where some thread may not notice.
  bool begin_shut(Exempt exempt);
  bool all_are_out(std::uint64_t until) const;
  void open();

  // A thread that has passed and not come out, and the call it is in, where that was noted.
  struct Insider {
    pid_t thread = 0;
    std::optional<Call> call;
  };
  std::optional<Insider> somebody_inside() const;

  bool is_shut() const { return shut_.load(std::memory_order_acquire) != 0; }

  // While it lives, a thread that has passed counts as outside; then it passes again, and waits
  // where it is shut by then. For calls that wait for what may not come before a pause.
  class SteppedOut {
   public:
    explicit SteppedOut(CallBarrier& threshold);
    ~SteppedOut();
    SteppedOut(const SteppedOut&) = delete;
    SteppedOut& operator=(const SteppedOut&) = delete;

   private:
    CallBarrier& threshold_;
    bool was_inside_ = false;
  };

  // Threads that wait to pass.
  bool has_waiting() const { return waiting_.load(std::memory_order_relaxed) != 0; }
  // Changes with every pass. Nothing while somebody is inside.
  std::optional<std::uint64_t> passes() const;

  class GracePeriod;

  // In the child.
  static void forget_after_fork();

 private:
  static constexpr Call no_call{0xffff};

  // Where a thread says what it has passed. A record serves another thread when its own has ended.
  struct alignas(64) Thread {
    // Steps over each threshold, in and out: odd while the thread is inside.
    std::array<std::atomic<std::uint32_t>, kinds> steps{};
    std::atomic<bool> owned{true};
    std::atomic<Call> call{no_call};  // the last that was noted
    std::atomic<pid_t> id{0};
    Thread* next = nullptr;

    void note_owner();  // the calling thread
    void come_out_of_all();
  };

  static bool is_inside(std::uint32_t steps) { return steps % 2 != 0; }
  // Only the thread itself counts.
  static void step(std::atomic<std::uint32_t>& steps, std::memory_order order) {
    steps.store(steps.load(std::memory_order_relaxed) + 1, order);
  }

  // Waits while it is shut. The steps of this thread; nullptr where it was inside already.
  std::atomic<std::uint32_t>* enter() {
    Thread* const thread = this_thread();
    if (thread == nullptr) [[unlikely]]
      return nullptr;
    std::atomic<std::uint32_t>& steps = thread->steps[which_];
    if (is_inside(steps.load(std::memory_order_relaxed))) return nullptr;
    step_in(steps);
    if (shut_.load(std::memory_order_acquire) == 0) [[likely]]
      return &steps;
    return wait_to_enter(*thread, steps);
  }
  std::atomic<std::uint32_t>* wait_to_enter(const Thread& thread,
                                            std::atomic<std::uint32_t>& steps);

  // Says "inside" first and looks whether it is shut second; who shuts it does it the other way
  // round. The barrier between the two is made by who shuts, in every thread at once, where the
  // system can.
  static void step_in(std::atomic<std::uint32_t>& steps) {
    step(steps, std::memory_order_relaxed);
    if (has_membarrier_.load(std::memory_order_relaxed)) [[likely]] {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }

  static bool is_seen_by_all();
  // nullptr where there is no memory for a record.
  static Thread* this_thread() { return mine_ != nullptr ? mine_ : register_thread(); }
  static Thread* register_thread();
  static void end_of_thread(void* thread);

  // Once this thread has one.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Thread* mine_ = nullptr;
  // Only added to; a record serves again when its thread ends.
  static std::atomic<Thread*> threads_;
  static std::atomic<bool> has_membarrier_;
  static std::atomic<bool> has_untracked_threads_;  // there was no memory for their records

  const std::size_t which_;
  FutexWord shut_{0};
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<Thread*> exempt_{nullptr};
};

// Begin one after unlinking an object that threads look up without a lock. Once it is over, every
// thread that was inside a threshold when it began has left, so no thread refers to the object.
class CallBarrier::GracePeriod {
 public:
  // Nothing where not every thread can be watched.
  static std::optional<GracePeriod> begin();
  bool is_over() const;

 private:
  struct Seen {
    const std::atomic<std::uint32_t>* steps;
    std::uint32_t were;
  };
  std::vector<Seen> inside_;
};

}  // namespace cuvmm
