// SPDX-License-Identifier: Apache-2.0
// Chooses the allocations whose stacks are recorded: one for every so many bytes on average, and
// fewer if that takes more than a hundredth of the time.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/size.hpp"

namespace cuvmm::stacks {

class SampleRate {
 public:
  // How far one thread is from its next sample.
  struct Thread {
    std::int64_t left = 0;
    std::uint64_t random = 0;  // 0: not begun
  };

  // 0: none. 1: every allocation, however long that takes.
  void start(Size interval) {
    asked_ = interval;
    interval_ = interval;
    spent_ = 0;
    since_ = 0;
  }
  bool is_on() const { return interval_.load(std::memory_order_relaxed) != 0; }
  Size interval() const { return interval_.load(std::memory_order_relaxed); }

  // The bytes that this allocation stands for if it is sampled; 0 if it is not. Over many
  // allocations the weights add up to the bytes allocated, for every call stack.
  Size weight_of(Size size, Thread& thread) const;

  // Counts the time that a sample took, and adapts the interval. Times in ns.
  void spent(std::uint64_t began, std::uint64_t ended);

 private:
  std::atomic<Size> asked_{0};
  std::atomic<Size> interval_{0};
  std::atomic<std::uint64_t> spent_{0};  // since `since_`
  std::atomic<std::uint64_t> since_{0};
};

}  // namespace cuvmm::stacks
