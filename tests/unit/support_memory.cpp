// SPDX-License-Identifier: Apache-2.0
// The patterns with which tests know contents again.
#include "support/memory.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cuvmm::test {
namespace {

TEST(Patterns, AreToldFromThoseOfAnotherSeedOrPlace) {
  std::vector<std::byte> bytes(64 * KiB);
  fill_host_pattern(bytes.data(), bytes.size(), 7);
  EXPECT_TRUE(has_pattern(bytes.data(), bytes.size(), 7, 0));
  EXPECT_TRUE(has_pattern(bytes.data(), bytes.size(), 7, 4 * KiB + 4));
  EXPECT_FALSE(has_pattern(bytes.data(), bytes.size(), 8, 0));
  EXPECT_FALSE(has_pattern(bytes.data() + 4, bytes.size() - 4, 7, 0));
}

TEST(Patterns, NameTheFirstWrongWordWhereverItIs) {
  std::vector<std::byte> bytes(64 * KiB + 12);
  for (const Size at : {Size{0}, 4 * KiB - 4, 4 * KiB, 63 * KiB, bytes.size() - 4}) {
    fill_host_pattern(bytes.data(), bytes.size(), 7);
    bytes[at] ^= std::byte{1};
    bytes[bytes.size() - 4] ^= std::byte{2};
    const auto seen = has_pattern(bytes.data(), bytes.size(), 7, 0);
    EXPECT_FALSE(seen);
    EXPECT_NE(std::string{seen.message()}.find("byte " + std::to_string(at) + " "),
              std::string::npos)
        << seen.message();
  }
}

}  // namespace
}  // namespace cuvmm::test
