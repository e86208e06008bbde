// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace cuvmm {

// Whether cuvmm sees every call that could submit work or touch memory. Coverage is full until the
// program calls a driver function that is on neither of cuvmm's lists, such as one that a newer
// driver adds. Shortcuts that rely on full coverage (skipping a wait, deferring a copy, moving live
// memory) are taken only while it lasts.
class HookCoverage {
 public:
  bool is_whole() const { return !is_lost_.load(std::memory_order_acquire); }

  // The number of functions on neither list that the program was given, called or not.
  std::uint32_t unlisted() const { return unlisted_.load(std::memory_order_relaxed); }
  void handed_out_unlisted() { unlisted_.fetch_add(1, std::memory_order_relaxed); }

  // Permanent. Returns true for the first caller.
  bool lose() { return !is_lost_.exchange(true, std::memory_order_acq_rel); }

 private:
  std::atomic<bool> is_lost_{false};
  std::atomic<std::uint32_t> unlisted_{0};
};

// Process-wide, since programs look functions up before there is an engine.
inline HookCoverage& hook_coverage() {
  static constinit HookCoverage of_the_process;
  return of_the_process;
}

}  // namespace cuvmm
