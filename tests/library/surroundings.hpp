// SPDX-License-Identifier: Apache-2.0
// What the tests of the library say of the process that they run in.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace cuvmm::test {

inline constexpr std::uint64_t MiB = 1 << 20;

// As the environment says.
inline bool is_preloaded() {
  const char* const kind = std::getenv("CUVMM_TEST_ENGINE");
  return kind != nullptr && std::string{kind} == "preloaded";
}

}  // namespace cuvmm::test
