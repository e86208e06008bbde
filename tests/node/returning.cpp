// SPDX-License-Identifier: Apache-2.0
// Where groups have their turns, and how they come back after they were paused for another.
#include "policy_world.hpp"

namespace cuvmm::test {
namespace {

// A group comes to two cards that others use.
class TurnsOfGroups : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(world.lease(world.come(), 60, card));
    ASSERT_TRUE(world.lease(there, 60, other_card));
    world.ask(b0, 60, card);
  }

  PolicyWorld world;
  const ClientId there = world.come();
  const ClientId b0 = world.come(terms(0, 0, "b"));
  const ClientId b1 = world.come(terms(0, 0, "b"));
};

TEST_F(TurnsOfGroups, CoverOnlyTheirPlaces) {
  ASSERT_TRUE(world.has_turn(b0));
  const ClientId another = world.come();
  world.ask(another, 60, other_card);
  ASSERT_TRUE(world.has_turn(another));
  world.apply(world.request(there));
  ASSERT_EQ(world.leased(another, other_card), 60 * GiB);
  world.ask(b1, 60, other_card);
  EXPECT_TRUE(world.requests(another).empty()) << "it has its turn there";
}

TEST_F(TurnsOfGroups, ExtendToPlacesThatTheirMembersTurnOutToNeed) {
  const RequestId asked = world.ask(b1, 60, other_card);
  const ClientId another = world.come();
  world.ask(another, 80, other_card);
  EXPECT_FALSE(world.has_turn(another));
  world.apply(world.request(there));
  EXPECT_TRUE(world.is_granted(asked));
}

// Each group needs most of both cards.
class TwoGroupsOnTwoCards : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(world.lease(a0, 60, card));
    ASSERT_TRUE(world.lease(a1, 60, other_card));
    asked = world.ask(b0, 60, card);
    ASSERT_TRUE(world.has_turn(b0));
  }
  void pause_a() {
    world.apply(world.request(a1));
    world.apply(world.request(a0));
    ASSERT_TRUE(world.is_granted(asked));
  }

  PolicyWorld world;
  const ClientId a0 = world.come(terms(0, 0, "a"));
  const ClientId a1 = world.come(terms(0, 0, "a"));
  const ClientId b0 = world.come(terms(0, 0, "b"));
  const ClientId b1 = world.come(terms(0, 0, "b"));
  RequestId asked = 0;
};

TEST_F(TwoGroupsOnTwoCards, ComeBackInATurnOfTheirOwn) {
  world.apply(world.request(a1));
  const RequestId early = world.ask(a1, 60, other_card);
  EXPECT_FALSE(world.is_granted(early)) << "its kernels would spin for the other member";
  world.apply(world.request(a0));
  EXPECT_TRUE(world.lease(b1, 60, other_card));
  const RequestId back = world.ask(a0, 60, card);
  world.after(PolicyTimes{}.shortest_quantum);
  ASSERT_TRUE(world.has_turn(a0));
  world.apply(world.request(b0));
  world.apply(world.request(b1));
  EXPECT_TRUE(world.is_granted(back));
  EXPECT_TRUE(world.is_granted(early));
}

// A group whose turn did not cover the place of a member that asks later would find others there.
TEST_F(TwoGroupsOnTwoCards, HaveTheirTurnWhereverTheirMemoryWasTaken) {
  pause_a();
  ASSERT_TRUE(world.lease(b1, 60, other_card));
  world.ask(a0, 60, card);
  world.after(PolicyTimes{}.shortest_quantum);
  ASSERT_TRUE(world.has_turn(a0));
  EXPECT_EQ(world.policy.turns().turns().at(0).places, (std::set{card, other_card}));
}

TEST_F(TwoGroupsOnTwoCards, ComeBackInATurnOfTheirOwnAfterALatePause) {
  const ReclaimRequested late = world.request(a1);
  world.after(10 * ms);
  world.apply(world.request(a0));
  world.after(PolicyTimes{}.reclaim_within - 10 * ms);
  ASSERT_TRUE(world.has_turn(b0));
  ASSERT_TRUE(world.requests(a1).empty());
  world.apply(late);
  const RequestId early = world.ask(a1, 60, other_card);
  EXPECT_FALSE(world.is_granted(early)) << "its kernels would spin for the other member";
  EXPECT_EQ(world.refusal(early), nullptr);
}

TEST_F(TwoGroupsOnTwoCards, ComeBackAtOnceIfNobodyElseIsThere) {
  pause_a();
  world.tell(ClientLeft{b0});
  world.tell(ClientLeft{b1});
  EXPECT_TRUE(world.lease(a0, 60, card));
}

// Its kernels may spin for that member already. No turns start, so it needs none.
TEST_F(TwoGroupsOnTwoCards, AMemberComesBackAtOnceBesideOneThatRuns) {
  pause_a();
  const RequestId back = world.ask(a0, 60, card);
  world.after(PolicyTimes{}.shortest_quantum);
  world.apply(world.request(b0));
  ASSERT_TRUE(world.is_granted(back));
  world.after(PolicyTimes{}.shortest_quantum);
  ASSERT_TRUE(world.lease(b1, 10, other_card));
  world.ask(world.come(), 95, other_card);
  const ReclaimRequested asked_of_b1 = world.request(b1);
  world.answer(asked_of_b1, ReclaimOutcome::Deferred);
  world.after(asked_of_b1.work_within);
  world.tell(WorkOutlastedTurn{b1});
  world.answer(asked_of_b1, ReclaimOutcome::Refused);
  ASSERT_FALSE(world.all<TurnsSuspended>().empty());
  EXPECT_TRUE(world.lease(a1, 60, other_card));
}

TEST_F(TwoGroupsOnTwoCards, IsRefusedIfItDoesNotWait) {
  pause_a();
  const RequestId at_once = 1000;
  world.tell(LeaseRequested{a1, at_once, other_card, GiB, true});
  ASSERT_NE(world.refusal(at_once), nullptr);
  EXPECT_EQ(world.refusal(at_once)->why, RefusalReason::NotAtOnce);
}

}  // namespace
}  // namespace cuvmm::test
