// SPDX-License-Identifier: Apache-2.0
// Work that cannot be stopped when others have their turn.
#include "policy_world.hpp"

namespace cuvmm::test {
namespace {

// The holder has 60 GiB of a card of 100 when the other has its turn for as much.
class WorkThatOutlastsATurn : public ::testing::Test {
 protected:
  explicit WorkThatOutlastsATurn(const PolicyTimes& times = {}) : world(times) {
    EXPECT_TRUE(world.lease(holder, 60));
    asked = world.ask(other, 60);
    EXPECT_TRUE(world.has_turn(other));
  }

  // The holder answers that it needs more time, and its work goes on for as long.
  void work_on_for(Microseconds time) {
    world.answer(world.request(holder), ReclaimOutcome::Deferred);
    world.after(time);
  }
  std::vector<TurnsSuspended> suspended() const { return world.all<TurnsSuspended>(); }

  PolicyWorld world;
  const ClientId holder = world.come();
  const ClientId other = world.come();
  RequestId asked = 0;
};

// Moves 60 GiB in 8 ms.
class WorkOfAFastHolder : public WorkThatOutlastsATurn {
 protected:
  static constexpr Microseconds swap = 8 * ms;
  static constexpr Microseconds turn = swap * PolicyTimes{}.quantum_per_swap;
  WorkOfAFastHolder()
      : WorkThatOutlastsATurn([] {
          PolicyTimes times;
          times.swapped_per_second = 60 * GiB * (second / swap);
          return times;
        }()) {}
};

TEST_F(WorkOfAFastHolder, EndsTurnsOnceItHasBeenInFlightForAsLongAsATurn) {
  EXPECT_EQ(world.request(holder).work_within, turn);
  work_on_for(turn);
  world.tell(WorkOutlastedTurn{holder});
  EXPECT_TRUE(world.policy.turns().turns().empty());
  ASSERT_EQ(suspended().size(), 1u);
  EXPECT_EQ(suspended()[0].because_of, holder);
  EXPECT_EQ(suspended()[0].in_flight, turn);
  EXPECT_EQ(suspended()[0].longest, turn);
}

TEST_F(WorkOfAFastHolder, DoesNotCountBeforeThat) {
  work_on_for(turn - 1);
  world.tell(WorkOutlastedTurn{holder});
  EXPECT_TRUE(suspended().empty());
  EXPECT_TRUE(world.has_turn(other));
}

TEST_F(WorkOfAFastHolder, DoesNotCountIfTheClientIsNotToPause) {
  world.tell(WorkOutlastedTurn{other});
  EXPECT_TRUE(suspended().empty());
  world.apply(world.request(holder));
  world.after(turn);
  world.tell(WorkOutlastedTurn{holder});
  EXPECT_TRUE(suspended().empty());
}

TEST_F(WorkOfAFastHolder, MayTakeAsLongAsATurnOfTheHolder) {
  world.after(2 * swap);  // as long as the swap takes that gives the other its memory
  world.apply(world.request(holder));
  ASSERT_TRUE(world.is_granted(asked));
  world.ask(holder, 60);
  world.after(2 * turn);
  ASSERT_TRUE(world.has_turn(holder));
  EXPECT_EQ(world.request(other).work_within, 2 * turn);
}

// Until the suspension is over, requests that need a turn wait.
TEST_F(WorkOfAFastHolder, KeepsOthersWaitingWithoutRefusals) {
  const ClientId third = world.come();
  work_on_for(turn);
  world.tell(WorkOutlastedTurn{holder});
  world.answer(world.request(holder), ReclaimOutcome::Refused);
  const RequestId later = world.ask(third, 60);
  EXPECT_EQ(world.refusal(asked), nullptr);
  EXPECT_EQ(world.refusal(later), nullptr);
  EXPECT_FALSE(world.has_turn(other));
  ASSERT_TRUE(world.policy.next_wake().has_value());
  EXPECT_LE(*world.policy.next_wake(), suspended()[0].until);
  world.after(PolicyTimes{}.without_turns);
  EXPECT_TRUE(world.has_turn(third)) << "which has had no turn yet";
}

TEST_F(WorkThatOutlastsATurn, MayTakeAsLongAsTheLongestTurnIfItsMemoryIsLarge) {
  EXPECT_EQ(world.request(holder).work_within, PolicyTimes{}.longest_quantum);
}

// A client that is stopped costs the others no more than before.
TEST_F(WorkThatOutlastsATurn, HasMoreTimeOnlyIfTheClientSaysSo) {
  world.after(PolicyTimes{}.reclaim_within);
  EXPECT_TRUE(world.requests(holder).empty());
  ASSERT_EQ(world.all<ReclaimEnded>().size(), 1u);
  EXPECT_EQ(world.all<ReclaimEnded>()[0].how, ReclaimEnd::Expired);
}

TEST_F(WorkThatOutlastsATurn, HasTimeToMoveItsMemoryAfterItsWork) {
  const Microseconds all = PolicyTimes{}.longest_quantum + PolicyTimes{}.reclaim_within;
  work_on_for(all - 1);
  EXPECT_EQ(world.requests(holder).size(), 1u);
  world.after(1);
  EXPECT_TRUE(world.requests(holder).empty());
}

// They wait for their work for as long as the whole pause may take.
TEST_F(WorkThatOutlastsATurn, CountsEarlierIfItIsOfAnOlderClient) {
  work_on_for(PolicyTimes{}.reclaim_within - 1);
  world.tell(WorkOutlastedTurn{holder});
  EXPECT_TRUE(suspended().empty());
  world.after(1);
  world.tell(WorkOutlastedTurn{holder});
  EXPECT_EQ(suspended().size(), 1u);
  world.answer(world.request(holder), ReclaimOutcome::Refused);
  EXPECT_EQ(world.refusal(asked), nullptr) << "it waits until turns are on again";
}

// The holder has memory on both cards, and pauses once.
TEST(WorkInFlight, IsWaitedForByAllPausesOfItsClient) {
  PolicyWorld world;
  const ClientId holder = world.come();
  ASSERT_TRUE(world.lease(holder, 60, card));
  ASSERT_TRUE(world.lease(holder, 60, other_card));
  const RequestId asked = world.ask(world.come(), 60);
  const std::vector<ReclaimRequested> both = world.requests(holder);
  ASSERT_EQ(both.size(), 2u);
  world.answer(both[0], ReclaimOutcome::Deferred);
  world.after(both[0].work_within);
  EXPECT_EQ(world.requests(holder).size(), 2u);
  world.apply(both[0]);
  world.apply(both[1]);
  EXPECT_TRUE(world.is_granted(asked));
  for (const ReclaimEnded& ended : world.all<ReclaimEnded>()) {
    EXPECT_EQ(ended.how, ReclaimEnd::Applied);
  }
}

TEST(WorkInFlight, MayTakeAsLongAsWorkOutlastsIfATurnIsShorter) {
  PolicyTimes times;
  times.shortest_quantum = 20 * ms;
  times.swapped_per_second = 1'000'000 * GiB;
  PolicyWorld world{times};
  const ClientId holder = world.come();
  ASSERT_TRUE(world.lease(holder, 60));
  world.ask(world.come(), 60);
  EXPECT_EQ(world.request(holder).work_within, 100 * ms);
}

// The last turn says little about a group that had little memory to get back then.
TEST(WorkInFlight, MayTakeLongerOnceItsGroupHasGrown) {
  PolicyWorld world;
  const ClientId first = world.come();
  const ClientId grown = world.come();
  ASSERT_TRUE(world.lease(first, 60));
  world.ask(grown, 41);
  world.after(ms);
  world.apply(world.request(first));
  ASSERT_TRUE(world.has_turn(grown));
  ASSERT_TRUE(world.lease(grown, 50));
  world.ask(first, 60);
  world.after(PolicyTimes{}.shortest_quantum);
  ASSERT_TRUE(world.has_turn(first));
  EXPECT_EQ(world.request(grown).work_within, PolicyTimes{}.longest_quantum);
}

TEST(WorkInFlight, MayTakeNoLongerThanTheGuaranteeThatWaitsForIt) {
  PolicyWorld world;
  const ClientId holder = world.come();
  ASSERT_TRUE(world.lease(holder, 60));
  world.ask(world.come(terms(60)), 60);
  EXPECT_EQ(world.request(holder).work_within, PolicyTimes{}.guarantee_within);
}

TEST(WorkInFlight, MayTakeAsLongAsATurnOfItsWholeGroup) {
  PolicyTimes times;
  times.swapped_per_second = 90 * GiB * 100;  // 90 GiB in 10 ms
  PolicyWorld world{times};
  const ClientId small = world.come(terms(0, 0, "a"));
  const ClientId large = world.come(terms(0, 0, "a"));
  ASSERT_TRUE(world.lease(small, 30, card));
  ASSERT_TRUE(world.lease(large, 60, other_card));
  world.ask(world.come(), 90, card);
  EXPECT_EQ(world.request(small).work_within, 250 * ms);
  EXPECT_EQ(world.request(large).work_within, 250 * ms);
}

}  // namespace
}  // namespace cuvmm::test
