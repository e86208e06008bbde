// SPDX-License-Identifier: Apache-2.0
// What the library tests know about the process that they run in.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace cuvmm::test {

inline constexpr std::uint64_t MiB = 1 << 20;

// As the test's runner says in the environment.
inline bool is_preloaded() {
  const char* const kind = std::getenv("CUVMM_TEST_ENGINE");
  return kind != nullptr && std::string{kind} == "preloaded";
}

}  // namespace cuvmm::test
