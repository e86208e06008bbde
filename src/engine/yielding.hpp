// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace cuvmm {

// Lets processes of higher priority go first until the service withdraws the grant, which it does
// as soon as it hears from them. If it has not done so after longest_ns, their claim is false or
// the service is slow, and calls no longer wait for the rest of the grant.
class Yielding {
 public:
  static constexpr std::uint64_t longest_ns = 2'000'000;

  // Call when another process claims to have work. Returns whether to wait. `grant` changes with
  // every grant.
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
