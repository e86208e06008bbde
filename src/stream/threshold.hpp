// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trace/futex.hpp"

namespace cuvmm {

// Held shut it keeps threads out, and tells when the last one that had passed has come out again.
// Passing costs a thread two stores of its own; shutting is what pays.
class Threshold {
 public:
  // A thread can have passed one of each at the same time.
  enum class Of : std::uint8_t { Calls, Work };
  static constexpr std::size_t kinds = 2;

  explicit Threshold(Of which);
  Threshold(const Threshold&) = delete;
  Threshold& operator=(const Threshold&) = delete;

  class Pass {
   public:
    explicit Pass(Threshold& threshold) : is_inside_(threshold.enter()) {}
    ~Pass() {
      if (is_inside_ != nullptr) is_inside_->store(false, std::memory_order_release);
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    std::atomic<bool>* const is_inside_;  // nullptr: that is told by an earlier one's
  };

  enum class Exempt : std::uint8_t { Nobody, ThisThread };
  // Nobody passes until open(), but for the thread that is exempt. Waits for those who have passed
  // already; false, and open again, where they have not come out when now_ns() is `until`. By one
  // at a time; any thread may open it.
  bool shut(std::uint64_t until, Exempt exempt);
  void open();
  bool is_shut() const { return shut_.load(std::memory_order_acquire) != 0; }

  // In the child.
  static void forget_after_fork();

 private:
  // Where a thread says what it has passed. A record serves another thread when its own has ended.
  struct alignas(64) Thread {
    std::array<std::atomic<bool>, kinds> inside{};
    std::atomic<bool> owned{true};
    Thread* next = nullptr;

    void come_out_of_all();
  };

  // Waits while it is shut. What tells that this thread has passed; nullptr where it had already.
  std::atomic<bool>* enter() {
    Thread* const thread = this_thread();
    if (thread == nullptr) [[unlikely]]
      return nullptr;
    std::atomic<bool>& is_inside = thread->inside[which_];
    if (is_inside.load(std::memory_order_relaxed)) return nullptr;
    tell(is_inside);
    if (shut_.load(std::memory_order_acquire) == 0) [[likely]]
      return &is_inside;
    return wait_to_enter(*thread, is_inside);
  }
  std::atomic<bool>* wait_to_enter(const Thread& thread, std::atomic<bool>& is_inside);

  // Says "inside" first and looks whether it is shut second; who shuts it does it the other way
  // round. The barrier between the two is made by who shuts, in every thread at once, where the
  // system can.
  void tell(std::atomic<bool>& is_inside) const {
    is_inside.store(true, std::memory_order_relaxed);
    if (has_membarrier_.load(std::memory_order_relaxed)) [[likely]] {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }

  bool is_seen_by_all();
  bool all_are_out(std::uint64_t until) const;
  // nullptr where there is no memory for a record.
  static Thread* this_thread() { return mine_ != nullptr ? mine_ : register_thread(); }
  static Thread* register_thread();
  static void end_of_thread(void* thread);

  // Once this thread has one.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Thread* mine_ = nullptr;
  // Only added to; a record serves again when its thread ends.
  static std::atomic<Thread*> threads_;

  const std::size_t which_;
  FutexWord shut_{0};
  std::atomic<Thread*> exempt_{nullptr};
  std::atomic<bool> has_membarrier_;
};

}  // namespace cuvmm
