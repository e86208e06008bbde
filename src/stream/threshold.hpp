// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  struct Thread;

  // Waits while it is shut. What tells that this thread has passed; nullptr where it had already.
  std::atomic<bool>* enter();
  std::atomic<bool>* wait_to_enter(const Thread& thread, std::atomic<bool>& is_inside);
  void tell(std::atomic<bool>& is_inside) const;

  bool all_are_out(std::uint64_t until) const;
  static Thread* this_thread();
  static Thread* register_thread();
  static void end_of_thread(void* thread);

  static std::atomic<Thread*>
      threads_;  // only added to; a record serves again when its thread ends

  const std::size_t which_;
  FutexWord shut_{0};
  std::atomic<Thread*> exempt_{nullptr};
  bool has_membarrier_;
};

}  // namespace cuvmm
