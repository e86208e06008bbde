// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace cuvmm {

// Whether we see every call that could submit work or touch memory. We do until the program calls
// a function of the driver that is in neither of our lists, as a newer driver may have. Shortcuts
// that rely on seeing everything (skipping a wait, putting a copy off, moving live memory) are
// taken only while coverage is complete.
class HookCoverage {
 public:
  bool is_whole() const { return !is_lost_.load(std::memory_order_acquire); }

  // How many functions the program was handed that are in neither list, called or not.
  std::uint32_t unlisted() const { return unlisted_.load(std::memory_order_relaxed); }
  void handed_out_unlisted() { unlisted_.fetch_add(1, std::memory_order_relaxed); }

  // For good. True for the first caller.
  bool lose() { return !is_lost_.exchange(true, std::memory_order_acq_rel); }

 private:
  std::atomic<bool> is_lost_{false};
  std::atomic<std::uint32_t> unlisted_{0};
};

// One for the process, since programs look functions up before there is an engine.
inline HookCoverage& hook_coverage() {
  static constinit HookCoverage of_the_process;
  return of_the_process;
}

}  // namespace cuvmm
