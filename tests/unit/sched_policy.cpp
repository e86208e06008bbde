// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "sched/estimates.hpp"
#include "sched/policy.hpp"

namespace cuvmm::test {
namespace {

constexpr std::uint64_t now = 1'000'000'000;

TEST(Policy, FifoPicksTheEarliestSubmission) {
  const std::vector<Candidate> lanes = {{.priority = 9, .order = 3}, {.order = 1}, {.order = 2}};
  EXPECT_EQ(choose(Schedule::Fifo, lanes, now), 1U);
}

TEST(Policy, RoundRobinPicksTheLeastRecentlyChosen) {
  const std::vector<Candidate> lanes = {
      {.order = 1, .last_turn = 5}, {.order = 9, .last_turn = 3}, {.order = 2, .last_turn = 4}};
  EXPECT_EQ(choose(Schedule::RoundRobin, lanes, now), 1U);
}

TEST(Policy, PriorityTakesTheHighestAndThenTheFirst) {
  const std::vector<Candidate> lanes = {{.priority = 1, .order = 1, .waiting_since = now},
                                        {.priority = 5, .order = 3, .waiting_since = now},
                                        {.priority = 5, .order = 2, .waiting_since = now}};
  EXPECT_EQ(choose(Schedule::Priority, lanes, now), 2U);
}

TEST(Policy, PriorityGrowsWithWaiting) {
  const std::uint64_t long_ago = now - 6 * aging_step_ns;
  const std::vector<Candidate> lanes = {{.priority = 5, .order = 2, .waiting_since = now},
                                        {.priority = 0, .order = 1, .waiting_since = long_ago}};
  EXPECT_EQ(choose(Schedule::Priority, lanes, now), 1U);
}

TEST(Policy, FairPicksTheClientWithTheLeastDeviceTime) {
  const std::vector<Candidate> lanes = {{.order = 1, .share_used = 300},
                                        {.order = 2, .share_used = 100},
                                        {.order = 3, .share_used = 200}};
  EXPECT_EQ(choose(Schedule::Fair, lanes, now), 1U);
}

TEST(Pace, OneOperationOfALowerClientIsInFlight) {
  const Pace pace = pace_of(Schedule::Priority, {.any_higher = true}, Duration{50});
  EXPECT_EQ(pace.least_operations, 1U);
  EXPECT_EQ(pace.most_ns, 50'000U);
  EXPECT_TRUE(pace.of_all);
}

TEST(Pace, TheHighestClientIsLimitedOnlyByTheDriversDepth) {
  for (Schedule policy :
       {Schedule::Fifo, Schedule::RoundRobin, Schedule::Priority, Schedule::Fair}) {
    const Pace pace = pace_of(policy, {}, Duration{50});
    EXPECT_FALSE(pace.of_all);
    EXPECT_GT(pace.most_ns, 1'000'000'000U);
    EXPECT_GE(pace.most_operations, 64U);
  }
}

TEST(Estimates, LearnEachKindAndGuessUnknownOnes) {
  Estimates estimates;
  for (int i = 0; i < 20; ++i) {
    estimates.learn(7, 200'000);
    estimates.learn(8, 1'000);
  }
  EXPECT_EQ(estimates.of(7), 200'000U);
  EXPECT_EQ(estimates.of(8), 1'000U);
  EXPECT_GT(estimates.of(9), 1'000U);
  EXPECT_LT(estimates.of(9), 200'000U);
}

}  // namespace
}  // namespace cuvmm::test
