// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <atomic>

namespace cuvmm {

// A function that runs in each forked child, once it has been registered.
class InChildren {
 public:
  explicit constexpr InChildren(void (*run)()) : run_(run) {}

  // Notes it only afterwards, so that no thread goes on without the handler. Two threads may both
  // register it, so its second run in a child must change nothing.
  void ensure() {
    if (is_registered_.load()) return;
    ::pthread_atfork(nullptr, nullptr, run_);
    is_registered_.store(true);
  }

 private:
  void (*const run_)();
  std::atomic<bool> is_registered_{false};
};

}  // namespace cuvmm
