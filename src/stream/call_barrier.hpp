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
#include "driver/cuda.hpp"
#include "trace/futex.hpp"

namespace cuvmm {

// While closed, the barrier blocks new callers and signals when the last caller inside has left.
// Entering costs a thread two stores to its own record; closing bears the cost of synchronization.
class CallBarrier {
 public:
  // A thread can be inside one barrier of each kind at a time. Questions and Forwarded are never
  // closed: they only record that a thread is inside. A GracePeriod waits for threads inside
  // Questions, but not for threads inside Forwarded, which the driver may be blocking.
  enum class Of : std::uint8_t { Calls, Work, Questions, Forwarded };
  static constexpr std::size_t kinds = 4;

  explicit CallBarrier(Of which);
  CallBarrier(const CallBarrier&) = delete;
  CallBarrier& operator=(const CallBarrier&) = delete;

  // Inlined even where code is optimised for size, like all that a frequent call goes through.
  // Otherwise the linker would keep one copy for all callers, perhaps the small and slow one.
  class Pass {
   public:
    [[gnu::always_inline]] explicit Pass(CallBarrier& barrier) : steps_(barrier.enter()) {}
    // Records the call, so that find_caller_inside() can name it.
    [[gnu::always_inline]] Pass(CallBarrier& barrier, Call call) : Pass(barrier) {
      if (steps_ != nullptr) mine_->call.store(call, std::memory_order_relaxed);
    }
    [[gnu::always_inline]] ~Pass() {
      if (steps_ != nullptr) step<std::memory_order_release>(*steps_);
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    std::atomic<std::uint32_t>* const steps_;  // nullptr: already inside, or not tracked
  };

  enum class Exempt : std::uint8_t { Nobody, ThisThread };
  // Closes the barrier until open(); only the exempt thread may enter. Waits for the callers
  // already inside; if any is still inside when now_ns() reaches `until`, reopens and returns
  // false. One caller at a time; any thread may open it.
  bool shut(std::uint64_t until, Exempt exempt);
  // The two halves of shut(), for callers that do something else while they wait. begin_shut()
  // leaves the barrier open and returns false if some thread might not see that it is closed.
  bool begin_shut(Exempt exempt);
  bool has_drained(std::uint64_t until) const;
  void open();

  // The barrier stays closed, but callers no longer wait at it: the driver has been shut down or
  // has lost the device, so the hooks answer their calls with its error.
  void abandon(CUresult with);
  bool is_abandoned() const { return abandoned_with() != CUDA_SUCCESS; }
  CUresult abandoned_with() const { return abandoned_with_.load(std::memory_order_relaxed); }

  // A thread inside the barrier, and the call that it is in if that was recorded.
  struct Insider {
    pid_t thread = 0;
    std::optional<Call> call;
  };
  std::optional<Insider> find_caller_inside() const;

  bool is_shut() const { return shut_.load(std::memory_order_acquire) != 0; }

  // While it lives, its thread counts as outside, except for passes(). Its destructor reenters, and
  // waits if the barrier is closed by then. For calls that block on something that may not happen
  // until after a pause.
  class OutsideBarrier {
   public:
    explicit OutsideBarrier(CallBarrier& barrier);
    ~OutsideBarrier();
    OutsideBarrier(const OutsideBarrier&) = delete;
    OutsideBarrier& operator=(const OutsideBarrier&) = delete;

   private:
    CallBarrier& barrier_;
    bool was_inside_ = false;
  };

  // Whether threads are waiting to enter.
  bool has_waiting() const { return waiting_.load(std::memory_order_relaxed) != 0; }
  // A number that changes with every pass; nullopt while any thread is in a call.
  std::optional<std::uint64_t> passes() const;

  class GracePeriod;

  // Call in a forked child.
  static void forget_after_fork();

 private:
  static constexpr Call no_call{0xffff};

  // One thread's state at every barrier. When the thread ends, another reuses its record.
  struct alignas(64) Thread {
    // Counts entries and exits at each barrier: odd while the thread is inside.
    std::array<std::atomic<std::uint32_t>, kinds> steps{};
    std::array<std::atomic<bool>, kinds> has_stepped_out{};  // in the middle of a call
    std::atomic<bool> owned{true};
    std::atomic<Call> call{no_call};  // the last one recorded
    std::atomic<pid_t> id{0};
    Thread* next = nullptr;

    void note_owner();  // the calling thread
    void come_out_of_all();
  };

  static bool is_inside(std::uint32_t steps) { return steps % 2 != 0; }
  // Only the owning thread increments its counts. Inlined even where code is optimised for size:
  // with the order as an argument of a call, the store would be a locked exchange.
  template <std::memory_order order>
  [[gnu::always_inline]] static void step(std::atomic<std::uint32_t>& steps) {
    steps.store(steps.load(std::memory_order_relaxed) + 1, order);
  }

  // Waits while the barrier is closed. Returns this thread's counter, or nullptr if the thread was
  // already inside or has no record.
  [[gnu::always_inline]] std::atomic<std::uint32_t>* enter() {
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

  // The entering thread stores "inside", then checks whether the barrier is closed; the closing
  // thread stores "closed", then checks for threads inside. Each needs a fence between its two
  // steps. If the kernel has membarrier(), the closing thread uses it to issue the fence in every
  // thread, so that entering stays cheap.
  [[gnu::always_inline]] static void step_in(std::atomic<std::uint32_t>& steps) {
    step<std::memory_order_relaxed>(steps);
    if (has_membarrier_.load(std::memory_order_relaxed) != 0) [[likely]] {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }

  static bool is_seen_by_all();
  // nullptr if there is no memory for a record.
  [[gnu::always_inline]] static Thread* this_thread() {
    return mine_ != nullptr ? mine_ : register_thread();
  }
  static Thread* register_thread();
  static void end_of_thread(void* thread);

  // Set once this thread has a record.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Thread* mine_ = nullptr;
  // Records are only added; each is reused after its thread ends.
  static std::atomic<Thread*> threads_;
  static std::atomic<std::uint32_t> has_membarrier_;  // 0 or 1; loads of a bool are not inlined
  static std::atomic<bool> has_untracked_threads_;    // no memory for their records

  const std::size_t which_;
  FutexWord shut_{0};
  std::atomic<CUresult> abandoned_with_{CUDA_SUCCESS};
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<Thread*> exempt_{nullptr};
};

// A grace period as in RCU: begin one after unlinking an object that threads look up without a
// lock. Once it is over, every thread that was inside a barrier (other than Forwarded) when it
// began has left, so no thread refers to the object.
class CallBarrier::GracePeriod {
 public:
  // nullopt if some thread cannot be tracked.
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
