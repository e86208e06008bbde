// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdlib>

#include "base/no_forks.hpp"

namespace cuvmm {

// A function that runs at the process's exit, and at that of its forked children, once it has been
// registered there.
class AtExit {
 public:
  explicit constexpr AtExit(void (*run)()) : run_(run) {}

  // Has no effect after the first time.
  void ensure() {
    if (is_registered_.load(std::memory_order_acquire)) return;
    const NoForks meanwhile;
    if (is_registered_.load(std::memory_order_relaxed)) return;
    std::atexit(run_);
    is_registered_.store(true, std::memory_order_release);
  }

 private:
  void (*const run_)();
  std::atomic<bool> is_registered_{false};
};

}  // namespace cuvmm
