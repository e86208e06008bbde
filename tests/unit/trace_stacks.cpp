// SPDX-License-Identifier: Apache-2.0
// The sampling of call stacks: what a sample stands for, what it may cost, and the table of stacks.
#include <gtest/gtest.h>

#include <gnu/libc-version.h>
#include <array>

#include "trace/stacks/native_frames.hpp"
#include "trace/stacks/sample_rate.hpp"
#include "trace/stacks/stack_table.hpp"

namespace cuvmm::test {
namespace {

using namespace stacks;

TEST(SampleRate, ASampleOfALargeAllocationStandsForItAlone) {
  SampleRate rate;
  rate.start(MiB);
  SampleRate::Thread thread;
  EXPECT_EQ(rate.weight_of(MiB, thread), MiB);
  EXPECT_EQ(rate.weight_of(3 * MiB + 1, thread), 3 * MiB + 1);
}

TEST(SampleRate, SamplesOfSmallAllocationsStandForAllOfThem) {
  SampleRate rate;
  rate.start(MiB);
  SampleRate::Thread thread;
  Size sum = 0;
  Size asked = 0;
  int samples = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    const Size size = 512 + 37 * static_cast<Size>(i % 1000);
    asked += size;
    const Size weight = rate.weight_of(size, thread);
    sum += weight;
    if (weight > 0) ++samples;
  }
  EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(asked),
              0.02 * static_cast<double>(asked));
  EXPECT_LT(samples, 25'000);
}

TEST(SampleRate, OfOneTakesEveryAllocationAndOfNothingNone) {
  SampleRate rate;
  SampleRate::Thread thread;
  EXPECT_EQ(rate.weight_of(MiB, thread), 0u);
  rate.start(1);
  EXPECT_EQ(rate.weight_of(512, thread), 512u);
}

TEST(SampleRate, FallsWhenSamplesTakeMoreThanAHundredthOfTheTime) {
  SampleRate rate;
  rate.start(MiB);
  constexpr std::uint64_t ms = 1'000'000;
  std::uint64_t now = 1000 * ms;
  for (int i = 0; i < 100; ++i, now += 10 * ms) rate.spent(now, now + ms);
  EXPECT_GT(rate.interval(), 8 * MiB);
  // And rises again, but not beyond what was asked for.
  for (int i = 0; i < 100; ++i, now += 2000 * ms) rate.spent(now, now + 1);
  EXPECT_EQ(rate.interval(), MiB);
}

TEST(SampleRate, DoesNotFallIfEveryAllocationWasAskedFor) {
  SampleRate rate;
  rate.start(1);
  for (std::uint64_t now = 1; now < 1'000'000'000; now += 10'000'000)
    rate.spent(now, now + 9'000'000);
  EXPECT_EQ(rate.interval(), 1u);
}

class StackTables : public ::testing::Test {
 protected:
  std::uint32_t number_of(std::initializer_list<std::uint64_t> innermost_first) {
    std::array<Frame, most_frames> frames;
    std::size_t count = 0;
    for (const std::uint64_t code : innermost_first) frames[count++] = {.code = code};
    fresh = {};
    return table->number_of(std::span{frames}.first(count), fresh);
  }

  StackTable* const table = StackTable::create();
  TraceFacts fresh;
};

TEST_F(StackTables, KnowAStackAgain) {
  const auto first = number_of({3, 2, 1});
  EXPECT_EQ(fresh.names.size(), 3u);
  EXPECT_EQ(fresh.stacks.size(), 3u);
  EXPECT_EQ(number_of({3, 2, 1}), first);
  EXPECT_TRUE(fresh.names.empty());
  EXPECT_TRUE(fresh.stacks.empty());
}

TEST_F(StackTables, StoreWhatStacksHaveInCommonOnce) {
  const auto one = number_of({3, 2, 1});
  const auto other = number_of({4, 2, 1});
  EXPECT_NE(one, other);
  EXPECT_EQ(fresh.names.size(), 1u);
  ASSERT_EQ(fresh.stacks.size(), 1u);
  EXPECT_EQ(fresh.stacks[0].number, other);
  const std::uint32_t caller = fresh.stacks[0].caller;
  EXPECT_EQ(number_of({2, 1}), caller);
  EXPECT_TRUE(fresh.stacks.empty());
}

TEST_F(StackTables, ThatAreFullKeepTheCallers) {
  const auto caller = number_of({1});
  for (std::uint64_t code = 2; code < StackTable::most_places + 100; ++code) number_of({code, 1});
  EXPECT_EQ(number_of({1'000'000, 1}), caller);
  EXPECT_TRUE(fresh.stacks.empty());
  EXPECT_EQ(number_of({2'000'000}), 0u);
}

TEST_F(StackTables, AnEmptyStackIsNone) {
  EXPECT_EQ(number_of({}), 0u);
}

TEST(NativeFrames, AreNamedByFileAndAddress) {
  const Frame frame{.code = reinterpret_cast<std::uint64_t>(&::gnu_get_libc_version) + 1};
  EXPECT_NE(name_of_native(frame).find("libc.so.6+0x"), std::string::npos) << name_of_native(frame);
  EXPECT_EQ(name_of_native({.code = 1}), "?");
}

}  // namespace
}  // namespace cuvmm::test
