// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace cuvmm {

// A length of time, for options and waits.
using Duration = std::chrono::microseconds;
inline constexpr Duration an_hour{3600ll * 1'000'000};

constexpr std::uint64_t in_ns(Duration duration) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds{duration}.count());
}

// Time since boot, the same in all processes; never decreases.
inline std::uint64_t now_ns() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}
inline std::uint64_t now_us() {
  return now_ns() / 1000;
}

}  // namespace cuvmm
