// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace cuvmm {

// Lets processes of higher priority go first until the service takes the grant, which it does as
// soon as it hears from them. If it does not, what they wrote is not true, or the service is slow:
// the rest of the grant does not wait.
class Yielding {
 public:
  static constexpr std::uint64_t longest_ns = 2'000'000;

  // Whether to wait: another process says that it has work. `grant` changes with every grant.
  bool must_wait(std::uint32_t grant, std::uint64_t now) {
    if (grant_.load(std::memory_order_acquire) != grant) {
      until_.store(now + longest_ns, std::memory_order_relaxed);
      grant_.store(grant, std::memory_order_release);
    }
    return now < until_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint32_t> grant_{0};
  std::atomic<std::uint64_t> until_{0};
};

}  // namespace cuvmm
