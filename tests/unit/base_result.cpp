// SPDX-License-Identifier: Apache-2.0
#include "base/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace cuvmm::test {
namespace {

constexpr Error full{
    .kind = ErrorKind::OutOfMemory, .driver_code = 2, .doing = "map chunk", .asked = 2ull << 20};

Result<int> half_of(int n) {
  if (n % 2 != 0) return Error::invalid("halve", "odd", static_cast<Size>(n));
  return n / 2;
}
Result<int> quarter_of(int n) {
  return TRY(half_of(TRY(half_of(n))));
}

Result<std::unique_ptr<int>> boxed(int n) {
  const int half = TRY(half_of(n));
  return std::make_unique<int>(half);
}
Result<void> accept_even(int n) {
  TRY(half_of(n));
  return {};
}
Result<std::string> describe_even(int n) {
  TRY(accept_even(n));
  return std::string("even");
}

TEST(Result, HoldsAValueOrAnError) {
  const auto good = half_of(10);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 5);
  const auto bad = half_of(9);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().kind, ErrorKind::InvalidArgument);
  EXPECT_EQ(bad.error().asked, 9u);
}

TEST(Result, TryPassesTheFirstErrorUp) {
  EXPECT_EQ(*quarter_of(12), 3);
  EXPECT_EQ(quarter_of(9).error().asked, 9u);
  EXPECT_EQ(quarter_of(6).error().asked, 3u);
}

TEST(Result, TryPassesBetweenKindsOfResult) {
  EXPECT_TRUE(accept_even(4));
  EXPECT_EQ(*describe_even(4), "even");
  EXPECT_STREQ(describe_even(3).error().subject, "odd");
}

TEST(Result, CarriesMoveOnlyValues) {
  auto box = boxed(8);
  ASSERT_TRUE(box);
  const std::unique_ptr<int> taken = std::move(box).value();
  EXPECT_EQ(*taken, 4);
}

TEST(Result, MustGivesTheValue) {
  EXPECT_EQ(MUST(half_of(4), "four is even"), 2);
}

TEST(ResultDeathTest, ReadingAMissingValueAborts) {
  EXPECT_DEATH((void)half_of(3).value(), "");
  EXPECT_DEATH((void)half_of(4).error(), "");
  EXPECT_DEATH((void)MUST(half_of(3), "it was even yesterday"), "");
  EXPECT_DEATH(accept_even(3).value(), "");
}

TEST(Error, IsOneReadableLine) {
  EXPECT_EQ(full.text(), "map chunk: out of memory (CUDA error 2), 2.00 MiB requested");
  EXPECT_EQ(Error::invalid("create chunk", "the size is zero").text(),
            "create chunk: invalid argument (the size is zero)");
  const Error no_file{.kind = ErrorKind::SystemFailed, .system_code = ENOENT, .doing = "open file"};
  EXPECT_EQ(no_file.text(), "open file: No such file or directory");
  const Error limit{.kind = ErrorKind::OutOfMemory,
                    .doing = "take chunk",
                    .subject = "the limit",
                    .asked = 1ull << 30,
                    .available = 512ull << 20};
  EXPECT_EQ(limit.text(),
            "take chunk: out of memory (the limit), 1.00 GiB requested, 512 MiB available");
}

TEST(Error, OmitsAMissingBound) {
  const Error lack{.kind = ErrorKind::OutOfMemory,
                   .doing = "take chunk",
                   .asked = 1ull << 30,
                   .available = unlimited};
  EXPECT_EQ(lack.text(), "take chunk: out of memory, 1.00 GiB requested");
}

TEST(Error, CountsThingsOtherThanBytes) {
  Error none{.kind = ErrorKind::NotSupported,
             .doing = "take memory of a device",
             .subject = "there is no such device",
             .asked = 1000,
             .available = 2,
             .counts = true};
  EXPECT_EQ(none.text(),
            "take memory of a device: not supported (there is no such device), 1000 requested, 2 "
            "available");
  none.asked = static_cast<Size>(-1);
  EXPECT_NE(none.text().find(", -1 requested"), std::string::npos) << none.text();
}

TEST(Error, OfAMissingFunctionSaysBothVersions) {
  const Error old{.kind = ErrorKind::NotAvailable,
                  .doing = "allocate",
                  .subject = "cuMemAllocAsync",
                  .asked = 11020,
                  .available = 11000};
  EXPECT_EQ(old.text(),
            "allocate: not available in this driver (cuMemAllocAsync), needs CUDA 11.2, "
            "the driver has 11.0");
}

TEST(Error, EveryKindHasAUniqueName) {
  std::string seen = "|";
  for (int kind = 0; kind <= static_cast<int>(ErrorKind::TimedOut); ++kind) {
    const std::string name = std::string(name_of(static_cast<ErrorKind>(kind))) + "|";
    EXPECT_NE(name, "unknown error|");
    EXPECT_EQ(seen.find("|" + name), std::string::npos) << name;
    seen += name;
  }
  EXPECT_STREQ(name_of(static_cast<ErrorKind>(255)), "unknown error");
}

}  // namespace
}  // namespace cuvmm::test
