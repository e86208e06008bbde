// SPDX-License-Identifier: Apache-2.0
// Which clients the policy asks for memory, how much, and how the requests end.
#include "policy_world.hpp"

namespace cuvmm::test {
namespace {

TEST(Reclaims, CachesAreFreedBeforeAnythingMoves) {
  PolicyWorld world;
  const ClientId first = world.come();
  const ClientId second_one = world.come();
  ASSERT_TRUE(world.lease(first, 50));
  ASSERT_TRUE(world.lease(second_one, 50));
  world.report(first, 0, 50, true);
  world.report(second_one, 10, 0, false);
  const RequestId request = world.ask(world.come(), 10);
  EXPECT_TRUE(world.requests(first).empty());
  EXPECT_EQ(world.request(second_one).step, ReclaimStep::Cache);
  EXPECT_EQ(world.request(second_one).bytes, 10 * GiB);
  world.apply(world.request(second_one));
  EXPECT_TRUE(world.is_granted(request));
}

TEST(Reclaims, AMemberGivesItsCacheToItsGroup) {
  PolicyWorld world;
  const ClientId has_freed = world.come(terms(0, 0, "ranks"));
  const ClientId member = world.come(terms(0, 0, "ranks"));
  ASSERT_TRUE(world.lease(has_freed, 80));
  world.report(has_freed, 50, 0, false);
  const RequestId too_much = world.ask(member, 71);
  world.after(PolicyTimes{}.reports_within);
  ASSERT_NE(world.refusal(too_much), nullptr) << "the other 30 are in use, and it is not paused";
  const RequestId request = world.ask(member, 70);
  EXPECT_EQ(world.request(has_freed).step, ReclaimStep::Cache);
  EXPECT_EQ(world.request(has_freed).bytes, 50 * GiB);
  world.apply(world.request(has_freed));
  EXPECT_TRUE(world.is_granted(request));
}

// One rank frees memory and tells the other, which requests it before the service knows.
TEST(Reclaims, AMemberMayRequestWhatAnotherHasJustFreed) {
  PolicyWorld world;
  const ClientId frees = world.come(terms(0, 0, "ranks"));
  const ClientId member = world.come(terms(0, 0, "ranks"));
  ASSERT_TRUE(world.lease(frees, 80));
  const RequestId cached = world.ask(member, 60);
  EXPECT_EQ(world.refusal(cached), nullptr);
  world.report(frees, 80, 0, false);
  EXPECT_EQ(world.request(frees).step, ReclaimStep::Cache);
  world.apply(world.request(frees));
  EXPECT_TRUE(world.is_granted(cached));

  world.give_back(member, 60);
  ASSERT_TRUE(world.lease(frees, 40));
  const RequestId returned = world.ask(member, 60);
  EXPECT_EQ(world.refusal(returned), nullptr);
  world.give_back(frees, 80);
  EXPECT_TRUE(world.is_granted(returned));

  const RequestId in_vain = world.ask(frees, 60);
  world.after(PolicyTimes{}.reports_within - 1);
  EXPECT_EQ(world.refusal(in_vain), nullptr);
  EXPECT_EQ(world.policy.next_wake(), world.now() + 1);
  world.after(1);
  ASSERT_NE(world.refusal(in_vain), nullptr);
  EXPECT_EQ(world.refusal(in_vain)->why, RefusalReason::BeyondCapacity);
}

TEST(Reclaims, ColdMemoryMovesBeforeAnyClientIsPaused) {
  PolicyWorld world;
  const ClientId idle = world.come();
  const ClientId busy = world.come();
  ASSERT_TRUE(world.lease(idle, 50));
  ASSERT_TRUE(world.lease(busy, 50));
  world.report(idle, 0, 0, true);
  world.report(busy, 2, 20, false);
  world.ask(world.come(), 10);
  EXPECT_TRUE(world.requests(idle).empty());
  EXPECT_EQ(world.request(busy).step, ReclaimStep::Cold);
}

TEST(Reclaims, AnIdleClientIsPausedBeforeARequestIsRefused) {
  PolicyWorld world;
  const ClientId idle = world.come();
  ASSERT_TRUE(world.lease(idle, 100));
  world.report(idle, 0, 0, true);
  const RequestId request = world.ask(world.come(), 10);
  EXPECT_EQ(world.request(idle).step, ReclaimStep::Pause);
  EXPECT_EQ(world.request(idle).bytes, 100 * GiB) << "all of it moves";
  world.apply(world.request(idle));
  EXPECT_TRUE(world.is_granted(request));
}

TEST(Reclaims, TheLowestPriorityIsAskedFirst) {
  PolicyWorld world;
  const ClientId important = world.come(terms(0, 5));
  const ClientId unimportant = world.come(terms(0, -5));
  ASSERT_TRUE(world.lease(important, 60));
  ASSERT_TRUE(world.lease(unimportant, 40));
  world.report(important, 20, 0, true);
  world.report(unimportant, 20, 0, false);
  world.ask(world.come(terms(0, 9)), 10);
  EXPECT_TRUE(world.requests(important).empty());
  EXPECT_EQ(world.request(unimportant).bytes, 10 * GiB);
}

TEST(Reclaims, TheLargestBorrowerIsAskedNext) {
  PolicyWorld world;
  const ClientId within = world.come(terms(50));
  const ClientId borrower = world.come(terms(5));
  ASSERT_TRUE(world.lease(within, 60));
  ASSERT_TRUE(world.lease(borrower, 40));
  world.report(within, 10, 0, false);
  world.report(borrower, 10, 0, false);
  world.ask(world.come(), 10);
  EXPECT_TRUE(world.requests(within).empty());
  EXPECT_EQ(world.request(borrower).bytes, 10 * GiB);
}

TEST(Reclaims, TheLongestIdleIsAskedNext) {
  PolicyWorld world;
  const ClientId lately = world.come();
  const ClientId long_ago = world.come();
  ASSERT_TRUE(world.lease(lately, 50));
  ASSERT_TRUE(world.lease(long_ago, 50));
  world.report(long_ago, 0, 0, true);
  world.after(10 * second);
  world.report(lately, 0, 0, true);
  world.ask(world.come(), 10);
  EXPECT_TRUE(world.requests(lately).empty());
  EXPECT_FALSE(world.requests(long_ago).empty());
}

TEST(Reclaims, AHigherPriorityIsNotDisturbedForAPlainRequest) {
  PolicyWorld world;
  const ClientId important = world.come(terms(0, 5));
  ASSERT_TRUE(world.lease(important, 100));
  world.report(important, 0, 50, true);
  world.ask(world.come(), 10);
  EXPECT_FALSE(world.has_turn(important));
  for (const ReclaimRequested& asked : world.all<ReclaimRequested>()) {
    EXPECT_TRUE(world.has_turn(2)) << "only a turn may, not " << static_cast<int>(asked.step);
  }
}

TEST(Reclaims, SeveralAreAskedAtOnceWhereOneIsNotEnough) {
  PolicyWorld world;
  const ClientId first = world.come();
  const ClientId second_one = world.come();
  ASSERT_TRUE(world.lease(first, 50));
  ASSERT_TRUE(world.lease(second_one, 50));
  world.report(first, 8, 0, false);
  world.report(second_one, 8, 0, false);
  const RequestId request = world.ask(world.come(), 12);
  EXPECT_EQ(world.request(first).bytes + world.request(second_one).bytes, 12 * GiB);
  world.apply(world.request(first));
  EXPECT_FALSE(world.is_granted(request));
  world.apply(world.request(second_one));
  EXPECT_TRUE(world.is_granted(request));
}

TEST(Reclaims, AClientIsNotAskedAgainForMemoryItCouldNotGive) {
  PolicyWorld world;
  const ClientId liar = world.come();
  ASSERT_TRUE(world.lease(liar, 100));
  world.report(liar, 50, 0, false);
  world.ask(world.come(), 10);
  const ReclaimRequested asked = world.request(liar);
  ASSERT_EQ(asked.step, ReclaimStep::Cache);
  world.answer(asked, ReclaimOutcome::Applied, 1);
  EXPECT_EQ(world.leased(liar), 99 * GiB);
  for (const ReclaimRequested& next : world.requests(liar)) {
    EXPECT_NE(next.step, ReclaimStep::Cache);
  }
}

TEST(Reclaims, MoreTimeIsGivenOnce) {
  PolicyWorld world;
  const ClientId slow = world.come();
  ASSERT_TRUE(world.lease(slow, 100));
  world.report(slow, 50, 0, false);
  const RequestId request = world.ask(world.come(), 10);
  const ReclaimRequested asked = world.request(slow);
  world.after(PolicyTimes{}.reclaim_within - 1);
  world.answer(asked, ReclaimOutcome::Deferred);
  world.after(PolicyTimes{}.reclaim_within - 1);
  ASSERT_EQ(world.requests(slow).size(), 1u);
  world.answer(asked, ReclaimOutcome::Deferred);
  const auto ended = world.all<ReclaimEnded>();
  ASSERT_FALSE(ended.empty());
  EXPECT_EQ(ended[0].revision, asked.revision);
  EXPECT_EQ(ended[0].how, ReclaimEnd::Refused);
  EXPECT_FALSE(world.is_granted(request));
}

TEST(Reclaims, AStalledClientIsNotAskedUntilItReports) {
  PolicyWorld world;
  const ClientId stalled = world.come();
  ASSERT_TRUE(world.lease(stalled, 100));
  world.report(stalled, 50, 0, false);
  const ClientId asker = world.come();
  world.ask(asker, 10);
  world.after(PolicyTimes{}.reclaim_within);
  EXPECT_EQ(world.all<ReclaimEnded>().at(0).how, ReclaimEnd::Expired);
  const auto asked_so_far = world.all<ReclaimRequested>().size();
  world.ask(asker, 10);
  EXPECT_EQ(world.all<ReclaimRequested>().size(), asked_so_far);
  world.report(stalled, 50, 0, false);
  world.ask(asker, 10);
  EXPECT_GT(world.all<ReclaimRequested>().size(), asked_so_far);
}

TEST(Reclaims, ALateAnswerIsStaleAndItsMemoryCounts) {
  PolicyWorld world;
  const ClientId late = world.come();
  ASSERT_TRUE(world.lease(late, 100));
  world.report(late, 50, 0, false);
  world.ask(world.come(), 10);
  const ReclaimRequested asked = world.request(late);
  world.after(PolicyTimes{}.reclaim_within);
  world.answer(asked, ReclaimOutcome::Applied, 10);
  EXPECT_EQ(world.all<AnswerStale>().size(), 1u);
  EXPECT_EQ(world.leased(late), 90 * GiB);
}

TEST(Reclaims, EndWithTheClient) {
  PolicyWorld world;
  const ClientId dying = world.come();
  ASSERT_TRUE(world.lease(dying, 100));
  world.report(dying, 50, 0, false);
  const RequestId request = world.ask(world.come(), 10);
  world.tell(ClientLeft{dying});
  EXPECT_EQ(world.all<ReclaimEnded>().at(0).how, ReclaimEnd::ClientGone);
  EXPECT_TRUE(world.policy.open_reclaims().all().empty());
  EXPECT_TRUE(world.is_granted(request));
}

TEST(Hysteresis, RestoredMemoryStaysForAWhile) {
  PolicyWorld world;
  const ClientId first = world.come();
  ASSERT_TRUE(world.lease(first, 100));
  world.report(first, 0, 0, true);
  const ClientId second_one = world.come();
  const RequestId brought_in = world.ask(second_one, 60);
  world.apply(world.request(first));
  ASSERT_TRUE(world.is_granted(brought_in));
  world.report(second_one, 0, 60, true);
  world.ask(first, 60);
  EXPECT_TRUE(world.requests(second_one).empty());
  world.after(PolicyTimes{}.stays - 1);
  EXPECT_TRUE(world.requests(second_one).empty());
  world.after(1);
  EXPECT_FALSE(world.requests(second_one).empty());
}

TEST(Hysteresis, EndsForAGuarantee) {
  PolicyWorld world;
  const ClientId first = world.come();
  ASSERT_TRUE(world.lease(first, 100));
  world.report(first, 0, 0, true);
  const ClientId second_one = world.come();
  world.ask(second_one, 100);
  world.apply(world.request(first));
  ASSERT_EQ(world.leased(second_one), 100 * GiB);
  const RequestId guaranteed = world.ask(world.come(terms(10)), 10);
  world.apply(world.request(second_one));
  EXPECT_TRUE(world.is_granted(guaranteed));
}

}  // namespace
}  // namespace cuvmm::test
