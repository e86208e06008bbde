// SPDX-License-Identifier: Apache-2.0
// Clients whose memory does not fit together take turns holding it.
#include <set>

#include "policy_world.hpp"

namespace cuvmm::test {
namespace {

// Three busy clients that each need 60 GiB of a card of 100.
class ThreeThatDoNotFit : public ::testing::Test {
 protected:
  void want(ClientId client) { asked_[client] = world.ask(client, 60); }
  bool has(ClientId client) const { return world.leased(client) == 60 * GiB; }

  // All clients that were asked to give way do, and then ask for their memory again.
  void give_way() {
    for (const ClientId client : {first, second_one, third}) {
      for (const ReclaimRequested& asked : world.requests(client)) {
        world.apply(asked);
        want(client);
      }
    }
  }

  PolicyWorld world;
  const ClientId first = world.come();
  const ClientId second_one = world.come();
  const ClientId third = world.come();
  std::map<ClientId, RequestId> asked_;
};

TEST_F(ThreeThatDoNotFit, TakeTurnsWithoutRefusals) {
  for (const ClientId client : {first, second_one, third}) want(client);
  std::set<ClientId> had;
  for (int turn = 0; turn < 6; ++turn) {
    give_way();
    for (const ClientId client : {first, second_one, third}) {
      if (has(client)) had.insert(client);
    }
    const auto wake = world.policy.next_wake();
    ASSERT_TRUE(wake.has_value());
    world.after(*wake > world.now() ? *wake - world.now() : 0);
  }
  EXPECT_EQ(had.size(), 3u);
  EXPECT_TRUE(world.all<LeaseRefused>().empty());
}

TEST_F(ThreeThatDoNotFit, ATurnLastsItsQuantum) {
  want(first);
  want(second_one);
  give_way();
  ASSERT_TRUE(world.has_turn(second_one));
  ASSERT_TRUE(has(second_one));
  world.after(PolicyTimes{}.shortest_quantum - 1);
  EXPECT_TRUE(world.has_turn(second_one));
  world.after(1);
  EXPECT_FALSE(world.has_turn(second_one));
  EXPECT_TRUE(world.has_turn(first)) << "it was paused and waits";
}

TEST_F(ThreeThatDoNotFit, TheQuantumFollowsFromTheTimeOfTheSwap) {
  want(first);
  want(second_one);
  world.after(50 * ms);
  give_way();
  const auto started = world.all<TurnStarted>();
  ASSERT_FALSE(started.empty());
  const GroupTurn& turn = world.policy.turns().turns().at(0);
  EXPECT_EQ(turn.quantum, 50 * ms * PolicyTimes{}.quantum_per_swap);
}

// Whoever has had its turn holds its memory, and wants no turn until the other has taken it.
TEST_F(ThreeThatDoNotFit, TurnsLastInProportionToTheWeights) {
  ClientTerms heavier = terms();
  heavier.weight = 4;
  world.tell(TermsChanged{second_one, heavier});
  want(first);
  want(second_one);
  std::map<ClientId, Microseconds> had;
  for (int turn = 0; turn < 20; ++turn) {
    world.after(10 * ms);
    give_way();
    const ClientId holder = has(first) ? first : second_one;
    ASSERT_TRUE(has(holder) && world.has_turn(holder)) << turn;
    const Microseconds began = world.now();
    while (world.has_turn(holder)) world.after(ms);
    had[holder] += world.now() - began;
  }
  EXPECT_NEAR(static_cast<double>(had[second_one]) / static_cast<double>(had[first]), 4, 0.2);
}

TEST_F(ThreeThatDoNotFit, AnIdleClientGivesItsTurnUpAtOnce) {
  want(first);
  want(second_one);
  give_way();
  ASSERT_TRUE(world.has_turn(second_one));
  world.report(second_one, 0, 0, true);
  EXPECT_FALSE(world.has_turn(second_one));
  EXPECT_TRUE(world.has_turn(first));
}

TEST_F(ThreeThatDoNotFit, TurnsEndByThemselves) {
  want(first);
  want(second_one);
  world.apply(world.request(first));  // and asks for nothing more
  ASSERT_TRUE(world.has_turn(second_one));
  world.after(PolicyTimes{}.shortest_quantum);
  EXPECT_TRUE(world.policy.turns().turns().empty());
  EXPECT_TRUE(has(second_one)) << "nobody wants its memory";
}

TEST_F(ThreeThatDoNotFit, AClientThatDiesInItsTurnFreesItsMemoryForTheNext) {
  want(first);
  want(second_one);
  want(third);
  give_way();
  ASSERT_TRUE(world.has_turn(second_one));
  world.tell(ClientLeft{second_one});
  EXPECT_TRUE(has(third));
}

TEST_F(ThreeThatDoNotFit, AHolderThatDoesNotYieldIsNamedToTheAsker) {
  want(first);
  want(second_one);
  world.answer(world.request(first), ReclaimOutcome::Refused);
  const LeaseRefused* refused = world.refusal(asked_[second_one]);
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->why, RefusalReason::NotReturned);
  EXPECT_EQ(refused->holders.at(0).client, first);
}

TEST_F(ThreeThatDoNotFit, AReportThatAWaitingClientIsIdleDoesNotCostItItsTurn) {
  want(first);
  want(second_one);
  world.report(second_one, 0, 0, true);
  give_way();
  EXPECT_TRUE(has(second_one));
  EXPECT_TRUE(world.has_turn(second_one));
}

// If a holder does not give way, the client without its memory must not keep others from theirs.
class TurnWithoutItsMemory : public ThreeThatDoNotFit {
 protected:
  TurnWithoutItsMemory() {
    want(first);
    want(second_one);
    world.after(wait);
  }

  const PolicyTimes times;
  const Microseconds wait = 150 * ms;
};

TEST_F(TurnWithoutItsMemory, EndsUnlessItAsksAgain) {
  world.answer(world.request(first), ReclaimOutcome::Refused);
  ASSERT_NE(world.refusal(asked_[second_one]), nullptr);
  EXPECT_TRUE(world.has_turn(second_one));
  world.after(times.shortest_quantum - 1);
  EXPECT_TRUE(world.has_turn(second_one));
  EXPECT_EQ(world.policy.next_wake(), world.now() + 1);
  world.after(1);
  EXPECT_FALSE(world.has_turn(second_one));
}

TEST_F(TurnWithoutItsMemory, EndsAfterItGaveUp) {
  world.tell(RequestCancelled{second_one, asked_[second_one]});
  world.after(times.shortest_quantum);
  EXPECT_FALSE(world.has_turn(second_one));
}

TEST_F(TurnWithoutItsMemory, IsNotOverWhileItAsksAgain) {
  world.answer(world.request(first), ReclaimOutcome::Refused);
  world.report(first, 0, 0, false);
  want(second_one);
  world.after(times.shortest_quantum);
  ASSERT_TRUE(world.has_turn(second_one));
  world.apply(world.request(first));
  EXPECT_TRUE(has(second_one));
  world.after(1);
  EXPECT_TRUE(world.has_turn(second_one)) << "it has its memory now";
}

TEST_F(TurnWithoutItsMemory, IsFollowedByOthersTurnsAndDoesNotSetTheNextQuantum) {
  world.answer(world.request(first), ReclaimOutcome::Refused);
  world.after(times.shortest_quantum);
  world.report(first, 0, 0, false);
  want(second_one);
  EXPECT_FALSE(world.has_turn(second_one)) << "it rests for as long as it had its turn";
  want(third);
  EXPECT_TRUE(world.has_turn(third));
  give_way();
  world.after(wait + times.shortest_quantum);
  ASSERT_TRUE(world.has_turn(second_one) || world.has_turn(first));
  while (!world.has_turn(second_one)) {
    give_way();
    world.after(ms);
  }
  EXPECT_EQ(world.policy.turns().turns().at(0).quantum, times.shortest_quantum);
}

TEST(Turns, WeightsSetTheNumberOfTurns) {
  TurnTable table{{}};
  const std::vector<TurnWish> both{{"heavy", {card}, 3}, {"light", {card}, 1}};
  std::map<std::string, int> had;
  Microseconds now = 0;
  for (int i = 0; i < 400; ++i) {
    const auto started = table.start(both, now);
    ASSERT_EQ(started.size(), 1u);
    ++had[started[0]];
    now += 1000;
    table.end(started[0], started[0] == "heavy" ? 3 : 1, now);
  }
  EXPECT_NEAR(had["heavy"], 300, 3);
  EXPECT_NEAR(had["light"], 100, 3);
}

TEST(Turns, AWeightThatChangesCountsFromThenOn) {
  TurnTable table{{}};
  table.start({{"a", {card}, 1}}, 0);
  table.count_until_now("a", 1, 4000);  // its weight is 4 from here on
  table.end("a", 4, 8000);              // 4000 + 1000
  table.start({{"b", {card}, 1}}, 8000);
  table.end("b", 1, 12500);  // 4500
  const std::vector<TurnWish> both{{"a", {card}, 4}, {"b", {card}, 1}};
  EXPECT_EQ(table.start(both, 12500).at(0), "b");
  table.count_until_now("nobody", 1, 12500);
}

TEST_F(ThreeThatDoNotFit, NewTermsInATurnKeepTheTurn) {
  want(first);
  want(second_one);
  give_way();
  ASSERT_TRUE(world.has_turn(second_one));
  ClientTerms heavier = terms();
  heavier.weight = 5;
  world.tell(TermsChanged{second_one, heavier});
  EXPECT_TRUE(world.has_turn(second_one));
  world.after(PolicyTimes{}.shortest_quantum);
  EXPECT_FALSE(world.has_turn(second_one)) << "a turn is as long as before";
}

TEST_F(ThreeThatDoNotFit, AGuaranteeThatIsGivenWhileItWaitsEndsTheOthersTurn) {
  for (const ClientId client : {first, second_one, third}) want(client);
  give_way();
  const ClientId holder = has(first) ? first : second_one;
  ASSERT_TRUE(has(holder));
  world.tell(TermsChanged{third, terms(60)});
  for (const ReclaimRequested& asked : world.requests(holder)) world.apply(asked);
  EXPECT_TRUE(has(third)) << "before the turn is over";
}

TEST_F(ThreeThatDoNotFit, AGuaranteeThatIsGivenWhileItWaitsHasItsDeadlineFromThenOn) {
  want(first);
  want(third);
  world.after(10 * ms);
  world.tell(TermsChanged{third, terms(60)});
  world.after(PolicyTimes{}.guarantee_within);  // no client does what it is asked
  EXPECT_NE(world.refusal(asked_[third]), nullptr);
}

TEST(Turns, ANewClientHasNoCredit) {
  TurnTable table{{}};
  Microseconds now = 0;
  for (int i = 0; i < 100; ++i) {
    table.start({{"old", {card}, 1}}, now);
    table.end("old", 1, now += 1000);
  }
  std::map<std::string, int> had;
  for (int i = 0; i < 20; ++i) {
    const auto started = table.start({{"old", {card}, 1}, {"new", {card}, 1}}, now);
    ++had[started.at(0)];
    table.end(started[0], 1, now += 1000);
  }
  EXPECT_NEAR(had["old"], 10, 2);
}

TEST(Turns, AReturningClientHasNoCredit) {
  TurnTable table{{}};
  Microseconds now = 0;
  const TurnWish here{"here", {card}, 1};
  const TurnWish away{"away", {card}, 1};
  table.start({away}, now);
  table.end("away", 1, now += 1000);
  for (int i = 0; i < 100; ++i) {
    table.start({here}, now);
    table.end("here", 1, now += 1000);
  }
  std::map<std::string, int> had;
  for (int i = 0; i < 20; ++i) {
    const auto started = table.start({here, away}, now);
    ++had[started.at(0)];
    table.end(started[0], 1, now += 1000);
  }
  EXPECT_NEAR(had["away"], 10, 2);
}

TEST(Turns, AGroupOnTwoCardsIsNotStarved) {
  TurnTable table{{}};
  const TurnWish here{"here", {card}, 1};
  const TurnWish there{"there", {other_card}, 1};
  const TurnWish both{"both", {card, other_card}, 1};
  Microseconds now = 0;
  ASSERT_EQ(table.start({here, there}, now).size(), 2u);
  int waited = 0;
  // The two end at different times, so both cards are never free at once by themselves.
  for (; !table.has_turn("both") && waited < 10; ++waited) {
    table.end(waited % 2 == 0 ? "here" : "there", 1, now += 1000);
    table.start({here, there, both}, now);
  }
  EXPECT_LE(waited, 3);
}

// A client needs the memory of two others, of which one has stopped.
class TurnWithoutEnoughMemory : public ::testing::Test {
 protected:
  TurnWithoutEnoughMemory() {
    EXPECT_TRUE(world.lease(stopped, 50));
    EXPECT_TRUE(world.lease(obedient, 40));
    world.ask(asker, 70);
    EXPECT_TRUE(world.has_turn(asker));
    world.apply(world.request(obedient));
    world.after(PolicyTimes{}.reclaim_within);
    EXPECT_TRUE(world.lease(obedient, 40));
  }

  PolicyWorld world;
  const ClientId stopped = world.come();
  const ClientId obedient = world.come();
  const ClientId asker = world.come();
};

TEST_F(TurnWithoutEnoughMemory, PausesNobody) {
  const RequestId asked = world.ask(asker, 70);
  ASSERT_TRUE(world.has_turn(asker));
  EXPECT_TRUE(world.requests(obedient).empty());
  ASSERT_NE(world.refusal(asked), nullptr);
  EXPECT_EQ(world.refusal(asked)->why, RefusalReason::NotReturned);
}

TEST_F(TurnWithoutEnoughMemory, PausesAllOnceTheStoppedClientGoesOn) {
  world.report(stopped, 0, 0, false);
  const RequestId asked = world.ask(asker, 70);
  world.apply(world.request(obedient));
  world.apply(world.request(stopped));
  EXPECT_TRUE(world.is_granted(asked));
}

TEST_F(TurnWithoutEnoughMemory, DoesNotKeepAGuaranteeFromTakingWhatThereIs) {
  world.tell(TermsChanged{asker, terms(70)});
  world.ask(asker, 70);
  EXPECT_EQ(world.request(obedient).step, ReclaimStep::Pause);
}

TEST(Turns, EndWhereTheyAreWithheldAndStartAgainLater) {
  PolicyWorld world;
  const ClientId first = world.come();
  const ClientId second_client = world.come();
  ASSERT_TRUE(world.lease(first, 80));
  world.ask(second_client, 60);
  ASSERT_TRUE(world.has_turn(second_client));
  world.answer(world.request(first), ReclaimOutcome::Refused);
  world.policy.withhold_turns(card, world.now() + second, world.now());
  EXPECT_FALSE(world.has_turn(second_client));
  world.report(first, 0, 0, false);
  const RequestId refused = world.ask(second_client, 60);
  ASSERT_NE(world.refusal(refused), nullptr);
  EXPECT_EQ(world.refusal(refused)->why, RefusalReason::TurnsAreOff);
  world.after(2 * second);
  world.ask(second_client, 60);
  EXPECT_TRUE(world.has_turn(second_client));
}

TEST(Groups, GetAndLoseTurnsTogether) {
  PolicyWorld world;
  const ClientId a0 = world.come(terms(0, 0, "a"));
  const ClientId a1 = world.come(terms(0, 0, "a"));
  const ClientId b0 = world.come(terms(0, 0, "b"));
  const ClientId b1 = world.come(terms(0, 0, "b"));
  ASSERT_TRUE(world.lease(a0, 60, card));
  ASSERT_TRUE(world.lease(a1, 60, other_card));
  const RequestId first = world.ask(b0, 60, card);
  // In the opposite order: every member of `a` stops, since each waits for the other.
  EXPECT_EQ(world.request(a0).step, ReclaimStep::Pause);
  EXPECT_EQ(world.request(a1).step, ReclaimStep::Pause);
  const auto started = world.all<TurnStarted>();
  ASSERT_EQ(started.size(), 2u);
  EXPECT_EQ(started[0].client, b0);
  EXPECT_EQ(started[1].client, b1);
  world.apply(world.request(a1));
  world.apply(world.request(a0));
  EXPECT_TRUE(world.is_granted(first));
  EXPECT_TRUE(world.lease(b1, 60, other_card));
  const RequestId back0 = world.ask(a0, 60, card);
  world.ask(a1, 60, other_card);
  world.after(PolicyTimes{}.shortest_quantum);
  EXPECT_TRUE(world.has_turn(a0));
  EXPECT_FALSE(world.has_turn(b0));
  EXPECT_EQ(world.request(b0).step, ReclaimStep::Pause);
  EXPECT_EQ(world.request(b1).step, ReclaimStep::Pause);
  world.apply(world.request(b0));
  EXPECT_TRUE(world.is_granted(back0));
}

TEST(Groups, AreIdleWhenAllMembersAre) {
  PolicyWorld world;
  const ClientId a0 = world.come(terms(0, 0, "a"));
  const ClientId a1 = world.come(terms(0, 0, "a"));
  const ClientId other = world.come();
  ASSERT_TRUE(world.lease(a0, 50));
  ASSERT_TRUE(world.lease(a1, 50));
  world.report(a0, 0, 0, true);
  world.ask(other, 10);
  EXPECT_TRUE(world.has_turn(other)) << "nobody is idle, so it takes a turn";
  PolicyWorld second_world;
  const ClientId b0 = second_world.come(terms(0, 0, "b"));
  ASSERT_TRUE(second_world.lease(b0, 100));
  second_world.report(b0, 0, 0, true);
  const ClientId asker = second_world.come();
  second_world.ask(asker, 10);
  EXPECT_FALSE(second_world.has_turn(asker));
}

TEST(Groups, AreNotPausedForTheirOwnMember) {
  PolicyWorld world;
  const ClientId a0 = world.come(terms(0, 0, "a"));
  const ClientId a1 = world.come(terms(0, 0, "a"));
  ASSERT_TRUE(world.lease(a0, 100));
  const RequestId request = world.ask(a1, 10);
  world.after(PolicyTimes{}.reports_within);
  ASSERT_NE(world.refusal(request), nullptr);
  EXPECT_EQ(world.refusal(request)->why, RefusalReason::BeyondCapacity);
  EXPECT_TRUE(world.all<ReclaimRequested>().empty());
}

TEST(Groups, AMemberThatComesDuringTheTurnIsTold) {
  PolicyWorld world;
  const ClientId holder = world.come();
  ASSERT_TRUE(world.lease(holder, 100));
  const ClientId a0 = world.come(terms(0, 0, "a"));
  world.ask(a0, 10);
  ASSERT_TRUE(world.has_turn(a0));
  const ClientId a1 = world.come(terms(0, 0, "a"));
  EXPECT_EQ(world.all<TurnStarted>().back().client, a1);
}

}  // namespace
}  // namespace cuvmm::test
