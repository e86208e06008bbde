// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/sharing_plan.hpp"

#include <gtest/gtest.h>

namespace cuvmm::test {
namespace {

using arena::LiveParts;
using arena::SharingPlan;

constexpr Size granule = 2 * MiB;

LiveParts quarters(std::initializer_list<Size> which) {
  LiveParts live;
  for (const Size quarter : which) live.mark({quarter * granule / 4, granule / 4}, granule);
  return live;
}

class SharingPlanTest : public ::testing::Test {
 protected:
  // A chunk of two granules with the same parts live in both.
  void add_pair(const LiveParts& live) {
    const SharingPlan::Index chunk = plan_.add_chunk(2);
    plan_.add_granule(chunk, live);
    plan_.add_granule(chunk, live);
  }
  SharingPlan plan_;
};

TEST_F(SharingPlanTest, PutsWhatIsLiveWhereNothingIs) {
  for (const auto& live : {quarters({0, 1}), quarters({2, 3}), quarters({0, 3})}) {
    plan_.add_granule(plan_.add_chunk(1), live);
  }
  EXPECT_EQ(plan_.empty({}), 1);
  ASSERT_EQ(plan_.emptied().size(), 1);
  EXPECT_EQ(plan_.goal(plan_.emptied()[0]), 1 - plan_.emptied()[0]);
}

TEST_F(SharingPlanTest, PrefersTheFullestChunk) {
  plan_.add_granule(plan_.add_chunk(1), quarters({0}));
  plan_.add_granule(plan_.add_chunk(1), quarters({1}));
  plan_.add_granule(plan_.add_chunk(1), quarters({1, 2, 3}));
  EXPECT_EQ(plan_.empty({.gain = 1}), 1);
  EXPECT_EQ(plan_.goal(0), 2);
}

// Many chunks look alike, and none of them fits: that must not hide the one that does.
TEST_F(SharingPlanTest, FindsTheOneThatFitsAmongManyThatDoNot) {
  for (int i = 0; i < 100'000; ++i) plan_.add_granule(plan_.add_chunk(1), quarters({0, 1, 2}));
  plan_.add_granule(plan_.add_chunk(1), quarters({0, 1, 3}));
  plan_.add_granule(plan_.add_chunk(1), quarters({3}));
  EXPECT_EQ(plan_.empty({.gain = 1}), 1);
}

TEST_F(SharingPlanTest, BreaksUpChunksTogetherThatGainNothingAlone) {
  for (int i = 0; i < 2; ++i) add_pair(quarters({0, 1}));
  for (int i = 0; i < 2; ++i) add_pair(quarters({2, 3}));
  for (int i = 0; i < 4; ++i) plan_.add_spare();
  EXPECT_EQ(plan_.empty({}), 4);
  EXPECT_EQ(plan_.emptied().size(), 4);
  EXPECT_FALSE(plan_.lacks_spares());
}

TEST_F(SharingPlanTest, SaysWhenSparesRanOut) {
  for (int i = 0; i < 2; ++i) add_pair(quarters({0, 1}));
  for (int i = 0; i < 2; ++i) add_pair(quarters({2, 3}));
  for (int i = 0; i < 2; ++i) plan_.add_spare();
  EXPECT_EQ(plan_.empty({}), 2);
  EXPECT_TRUE(plan_.lacks_spares());
}

TEST_F(SharingPlanTest, DoesNotBreakUpWhatIsNearlyFull) {
  add_pair(quarters({0, 1, 2}));
  for (int i = 0; i < 4; ++i) plan_.add_spare();
  EXPECT_EQ(plan_.empty({}), 0);
  EXPECT_TRUE(plan_.emptied().empty());
}

// Each chunk has two granules, one for each half. Seen as a whole none fits into another.
TEST_F(SharingPlanTest, LooksAtTheWindowOfAGranule) {
  const auto windows = plan_.add_layout({quarters({0, 1}), quarters({2, 3})});
  const auto add = [&](Size low, Size high) {
    const SharingPlan::Index chunk = plan_.add_chunk(1);
    plan_.add_granule(chunk, quarters({low}), windows[0]);
    plan_.add_granule(chunk, quarters({high}), windows[1]);
  };
  add(0, 2);
  add(1, 2);
  add(0, 3);
  EXPECT_EQ(plan_.empty({}), 1);
  ASSERT_EQ(plan_.emptied().size(), 1);
  EXPECT_EQ(plan_.emptied()[0], 0);
  ASSERT_EQ(plan_.moved().size(), 2);
  EXPECT_NE(plan_.goal(0), plan_.goal(1));
}

// Nothing can be emptied at once: each chunk has a half that is full, and no other has it free.
TEST_F(SharingPlanTest, ConsolidatesSoThatOthersFit) {
  const LiveParts low = quarters({0, 1});
  const LiveParts high = quarters({2, 3});
  const auto windows = plan_.add_layout({low, high});
  const auto add = [&](const LiveParts& in_low, const LiveParts& in_high) {
    const SharingPlan::Index chunk = plan_.add_chunk(1);
    plan_.add_granule(chunk, in_low, windows[0]);
    plan_.add_granule(chunk, in_high, windows[1]);
  };
  add(quarters({0}), high);
  add(quarters({1}), high);
  add(low, quarters({2}));
  add(low, quarters({3}));
  EXPECT_EQ(plan_.empty({}), 0);
  plan_.settle();
  EXPECT_EQ(plan_.consolidate(), 2);
  plan_.settle();
  EXPECT_EQ(plan_.empty({}), 1);
}

}  // namespace
}  // namespace cuvmm::test
