// SPDX-License-Identifier: Apache-2.0
// How much a random test does, and with which seed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/size.hpp"

namespace cuvmm::test {

// CUVMM_TEST_SCALE: 1 unless set; the sanitizers run a tenth, stress runs more.
inline double test_scale() {
  static const double scale = [] {
    const char* text = std::getenv("CUVMM_TEST_SCALE");
    const double chosen = text != nullptr ? std::strtod(text, nullptr) : 1.0;
    return chosen > 0 ? chosen : 1.0;
  }();
  return scale;
}

inline std::uint64_t scaled(std::uint64_t count) {
  return std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(static_cast<double>(count) * test_scale()));
}

// If random tests are shortened, a sweep over failing calls tries only every sweep_step()-th.
inline std::uint64_t sweep_step() {
  return test_scale() >= 1 ? 1 : static_cast<std::uint64_t>(1 / test_scale());
}

// CUVMM_TEST_SEED: 1 unless set, so that a plain run repeats itself.
inline std::uint64_t seed() {
  static const std::uint64_t chosen = [] {
    const char* text = std::getenv("CUVMM_TEST_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 0) : std::uint64_t{1};
  }();
  return chosen;
}

// What a failing random test prints.
inline std::string how_to_repeat() {
  return "repeat with CUVMM_TEST_SEED=" + std::to_string(seed()) +
         " CUVMM_TEST_SCALE=" + std::to_string(test_scale());
}
#define PRINT_SEED_ON_FAILURE() SCOPED_TRACE(::cuvmm::test::how_to_repeat())

#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif
#else
inline constexpr bool thread_sanitizer = false;
#endif

// The thread sanitizer keeps most addresses for itself.
inline constexpr Size largest_reservation = thread_sanitizer ? 1 * TiB : 64 * TiB;

}  // namespace cuvmm::test
