// SPDX-License-Identifier: Apache-2.0
#include "base/size.hpp"

#include <gtest/gtest.h>

namespace cuvmm::test {
namespace {

TEST(Size, ReadsBinaryUnitsInAnyCase) {
  const std::pair<const char*, Size> table[] = {
      {"0", 0},           {"512", 512},
      {"512B", 512},      {"64K", 64 * KiB},
      {"64kb", 64 * KiB}, {"64KiB", 64 * KiB},
      {"3m", 3 * MiB},    {"16G", 16 * GiB},
      {"2TB", 2 * TiB},   {"1.5GiB", 1536 * MiB},
      {"0.5k", 512},      {" 7 M ", 7 * MiB},
      {"1P", 1024 * TiB}, {"15E", 15 * 1024 * 1024 * TiB},
  };
  for (const auto& [text, bytes] : table) {
    const auto size = parse_size(text);
    ASSERT_TRUE(size) << text;
    EXPECT_EQ(*size, bytes) << text;
  }
}

TEST(Size, SumsSaturateAtUnlimited) {
  EXPECT_EQ(saturating_sum(2, 3), 5U);
  EXPECT_EQ(saturating_sum(unlimited - 1, 1), unlimited);
  EXPECT_EQ(saturating_sum(unlimited, unlimited), unlimited);
  EXPECT_EQ(saturating_sum(1, unlimited - 2, 5, 7), unlimited);
}

TEST(Size, FractionIsRoundedDownToBytes) {
  EXPECT_EQ(*parse_size("0.1K"), 102u);
  EXPECT_EQ(*parse_size("0.0000000009K"), 0u);
  EXPECT_EQ(*parse_size("1.99999999999999999999K"), 2 * KiB - 1);
}

TEST(Size, RefusesInvalidSizes) {
  for (const char* text : {"",
                           " ",
                           "-1",
                           "+1",
                           "1.5.2G",
                           "1..5G",
                           ".5G",
                           "5.G",
                           "80%",
                           "80%%",
                           "G",
                           "16 G B",
                           "16GG",
                           "16X",
                           "1e3",
                           "0x10",
                           "1,5G",
                           "1.5",
                           "0.5B",
                           "16Gib ,",
                           "99999999999G",
                           "16E",
                           "18446744073709551616",
                           "99999999999999999999"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size) << text;
    EXPECT_EQ(size.error().kind, ErrorKind::InvalidArgument) << text;
    EXPECT_STRNE(size.error().subject, "") << text;
  }
}

TEST(Size, LargestNumberIsRead) {
  EXPECT_EQ(*parse_size("18446744073709551615"), unlimited);
  EXPECT_EQ(*parse_size("17179869183.999999999G"), unlimited / GiB * GiB + (GiB - 2));
}

TEST(Size, IsPrintedToThreeDigits) {
  const std::pair<Size, const char*> table[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {KiB, "1.00 KiB"},
      {1536, "1.50 KiB"},
      {2 * MiB, "2.00 MiB"},
      {10 * MiB, "10.0 MiB"},
      {100 * GiB, "100 GiB"},
      {3 * TiB, "3.00 TiB"},
      {1000 * MiB, "1000 MiB"},
  };
  for (const auto& [bytes, text] : table) EXPECT_EQ(print_size(bytes), text);
  EXPECT_EQ(print_size(GiB + 52 * MiB), "1.05 GiB");
  EXPECT_EQ(print_size(unlimited), "unlimited");
  EXPECT_EQ(print_size(unlimited - 1), "16.0 EiB");
}

TEST(Size, RoundingUpIsZeroOnOverflow) {
  EXPECT_EQ(round_up(0, 2 * MiB), 0u);
  EXPECT_EQ(round_up(1, 2 * MiB), 2 * MiB);
  EXPECT_EQ(round_up(2 * MiB, 2 * MiB), 2 * MiB);
  EXPECT_EQ(round_up(unlimited - 1, 2 * MiB), 0u);
  EXPECT_EQ(round_up(unlimited - 511, 512), unlimited - 511);
  EXPECT_EQ(round_up(10, 3), 12u);
}

TEST(SizeLimit, IsBytesOrAShareOrNone) {
  EXPECT_EQ(SizeLimit::parse("16G")->of(100 * GiB), 16 * GiB);
  EXPECT_EQ(SizeLimit::parse("80%")->of(100 * GiB), 80 * GiB);
  EXPECT_EQ(SizeLimit::parse("12.5%")->of(8 * GiB), GiB);
  EXPECT_EQ(SizeLimit::parse("100%")->of(unlimited), unlimited);
  EXPECT_EQ(SizeLimit::parse("0%")->of(8 * GiB), 0u);
  EXPECT_EQ(SizeLimit::parse("0")->of(8 * GiB), 0u);
  EXPECT_TRUE(SizeLimit::parse("None")->is_none());
  EXPECT_TRUE(SizeLimit::parse("unlimited")->is_none());
  EXPECT_EQ(SizeLimit::none().of(8 * GiB), unlimited);
}

TEST(SizeLimit, RoundTrips) {
  for (const char* text : {"16G", "1536", "80%", "12.5%", "0.25%", "none", "0", "2M", "100%"}) {
    const auto limit = SizeLimit::parse(text);
    ASSERT_TRUE(limit) << text;
    EXPECT_EQ(limit->print(), text);
    EXPECT_EQ(*SizeLimit::parse(limit->print()), *limit) << text;
  }
}

TEST(SizeLimit, RefusesInvalidLimits) {
  for (const char* text : {"", "%", "80%%", "101%", "100.1%", "-5%", "80 %x", "8 0%", "1e2%",
                           "eighty", "99999999999G", "18446744073709551616%", "80%G"}) {
    EXPECT_FALSE(SizeLimit::parse(text)) << text;
  }
}

}  // namespace
}  // namespace cuvmm::test
