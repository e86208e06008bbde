// SPDX-License-Identifier: Apache-2.0
#include "histories.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

constexpr std::uint64_t events_of_one = 10'000;

// Clients come and go within a history; each history begins with an empty machine.
template <class Each>
void run_histories(Manners manners, std::uint64_t count, const Each& each) {
  for (std::uint64_t i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("history " + std::to_string(i));
    NodeHistory history{seed() * 1000 + i, manners};
    history.run(events_of_one);
    history.end();
    each(history);
  }
}

TEST(RandomHistories, OfObedientClientsHoldEveryGuaranteeAndStarveNobody) {
  PRINT_SEED_ON_FAILURE();
  run_histories(Manners::Obedient, scaled(10), [](const NodeHistory& history) {
    EXPECT_GT(history.grants(), 100u);
    EXPECT_GT(history.guaranteed_grants(), 10u);
    EXPECT_GT(history.reclaims(), 100u);
    EXPECT_GT(history.parts(), 10u);
    EXPECT_GT(history.turns(), 10u);
    EXPECT_GT(history.merges(), 5u);
    EXPECT_GT(history.departures(), 20u);
    EXPECT_GT(history.returns(), 20u);
  });
}

TEST(RandomHistories, OfAnyClientsEndEveryRequestAndKeepTheBooksExact) {
  PRINT_SEED_ON_FAILURE();
  run_histories(Manners::Any, scaled(10), [](const NodeHistory& history) {
    EXPECT_GT(history.grants(), 100u);
    EXPECT_GT(history.reclaims(), 100u);
    EXPECT_GT(history.parts(), 10u);
    EXPECT_GT(history.departures(), 10u);
    EXPECT_GT(history.returns(), 10u);
  });
}

TEST(RandomHistories, AreDecidedDeterministically) {
  NodeHistory first{seed(), Manners::Any};
  NodeHistory again{seed(), Manners::Any};
  first.run(2'000);
  again.run(2'000);
  EXPECT_EQ(first.grants(), again.grants());
  EXPECT_EQ(first.reclaims(), again.reclaims());
  EXPECT_EQ(first.turns(), again.turns());
  EXPECT_EQ(first.departures(), again.departures());
  EXPECT_EQ(first.returns(), again.returns());
}

}  // namespace
}  // namespace cuvmm::test
