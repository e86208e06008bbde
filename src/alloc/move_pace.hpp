// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"

namespace cuvmm {

// Bounds the share of the time that goes into moving live memory: after an attempt, the next one
// waits for a multiple of the time that it took.
class MovePace {
 public:
  enum class Else : std::uint8_t {
    Refused,  // the request for which memory would move
    Spilled,  // moving is worth less then
  };
  bool is_resting(Else otherwise) const {
    const auto& until = otherwise == Else::Spilled ? rests_if_spilled_ : rests_;
    return now_ns() < until.load(std::memory_order_relaxed);
  }

  enum class Outcome : std::uint8_t {
    Moved,
    Futile,    // the program was stopped for nothing
    NoPromise  // it was not stopped, because that would not have yielded enough
  };
  // Call after each attempt with the time it took, in ns. If memory moved, leave out the wait for
  // running work, since the next attempt may not have to wait.
  void note(std::uint64_t took, Outcome outcome) {
    constexpr std::uint64_t usual = 8;
    constexpr std::uint64_t if_spilled = 32;
    const std::uint64_t now = now_ns();
    const auto rest = [&](std::atomic<std::uint64_t>& until, std::uint64_t times) {
      const std::uint64_t end = now + std::min(took * times, longest);
      if (until.load(std::memory_order_relaxed) < end) {
        until.store(end, std::memory_order_relaxed);
      }
    };
    rest(rests_if_spilled_, outcome == Outcome::Futile ? usual : if_spilled);
    if (outcome == Outcome::Futile) rest(rests_, usual);
  }

 private:
  // The process may have been stopped during an attempt.
  static constexpr std::uint64_t longest = 60'000'000'000;

  std::atomic<std::uint64_t> rests_{0};  // in now_ns()
  std::atomic<std::uint64_t> rests_if_spilled_{0};
};

}  // namespace cuvmm
