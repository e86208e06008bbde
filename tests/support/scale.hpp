// SPDX-License-Identifier: Apache-2.0
// How much a random test does, and with which seed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/size.hpp"

namespace cuvmm::test {

inline double positive_in_environment(const char* name) {
  const char* text = std::getenv(name);
  const double chosen = text != nullptr ? std::strtod(text, nullptr) : 1.0;
  return chosen > 0 ? chosen : 1.0;
}

// CUVMM_TEST_SCALE: 1 unless set; the sanitizers run a tenth, stress runs more.
inline double run_scale() {
  static const double scale = positive_in_environment("CUVMM_TEST_SCALE");
  return scale;
}

// CUVMM_TEST_SHARE: the scale of a plain run of this test, if less will do: the same programs run
// in full in another order of the device, or in a stress run.
inline double test_share() {
  static const double share = positive_in_environment("CUVMM_TEST_SHARE");
  return share;
}

inline double test_scale() {
  return run_scale() == 1 ? test_share() : run_scale();
}

inline std::uint64_t scaled(std::uint64_t count) {
  return std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(static_cast<double>(count) * test_scale()));
}

// A sweep whose rounds take long fails every sweep_step()-th call only, except in a stress run.
// Where it starts depends on the order of the simulated device, so that the orders try different
// calls.
inline std::uint64_t sweep_step() {
  constexpr std::uint64_t plain = 3;
  if (run_scale() >= 10) return 1;
  return std::max(plain, static_cast<std::uint64_t>(1 / test_scale()));
}
inline std::uint64_t sweep_start() {
  const char* order = std::getenv("VMM_SIM_ORDER");
  if (order == nullptr) return 1;
  return std::string_view{order} == "eager" ? 1 : std::string_view{order} == "lazy" ? 2 : 3;
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
         " CUVMM_TEST_SCALE=" + std::to_string(run_scale()) +
         " CUVMM_TEST_SHARE=" + std::to_string(test_share());
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
