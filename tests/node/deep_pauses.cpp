// SPDX-License-Identifier: Apache-2.0
// When a paused client leaves its devices, and when it returns.
#include "deep_pause_policy.hpp"

namespace cuvmm::test {
namespace {

TEST_F(DeepPauses, APausedClientLeavesOnceNothingHasWaitedForItForThatLong) {
  const ClientId client = world.come(leaving_after(minute));
  pause(client);
  EXPECT_EQ(world.policy.next_wake(), world.now() + minute);
  world.after(minute - 1);
  EXPECT_EQ(departures(), 0u);
  world.after(1);
  ASSERT_EQ(departures(), 1u);
  EXPECT_EQ(world.all<LeaveRequested>().front().client, client);
  has_left(client);
  EXPECT_FALSE(world.policy.next_wake().has_value());
}

TEST_F(DeepPauses, WithoutSuchTermsAClientStays) {
  pause(world.come());
  EXPECT_FALSE(world.policy.next_wake().has_value());
  world.after(1000 * minute);
  EXPECT_EQ(departures(), 0u);
}

TEST_F(DeepPauses, NewTermsApplyToAPausedClientAtOnce) {
  const ClientId client = world.come();
  pause(client);
  world.after(10 * minute);
  world.tell(TermsChanged{client, leaving_after(minute)});
  EXPECT_EQ(departures(), 1u);
}

TEST_F(DeepPauses, AClientThatIsNotPausedStaysHoweverIdle) {
  const ClientId client = world.come(leaving_after(minute));
  run(client);
  world.report(client, 0, 0, true);
  world.after(1000 * minute);
  EXPECT_EQ(departures(), 0u);
}

TEST_F(DeepPauses, AClientThatCannotLeaveIsNotAskedTo) {
  const ClientId client = world.come(leaving_after(minute));
  ASSERT_TRUE(world.lease(client, 10));
  world.report(client, 0, 0, true);
  world.ask(world.come(), 95);
  world.apply(world.request(client));  // paused, but it has never reported a pause
  world.after(1000 * minute);
  EXPECT_EQ(departures(), 0u);
}

TEST_F(DeepPauses, ACallThatWaitsBeginsTheTimeAnew) {
  const ClientId client = world.come(leaving_after(minute));
  pause(client);
  world.after(minute - 1);
  pause(client, true);
  world.after(minute);
  EXPECT_EQ(departures(), 0u);
  pause(client);
  world.after(minute - 1);
  EXPECT_EQ(departures(), 0u);
  world.after(1);
  EXPECT_EQ(departures(), 1u);
}

TEST_F(DeepPauses, ARequestThatWaitsBeginsTheTimeAnew) {
  const ClientId holder = world.come();
  ASSERT_TRUE(world.lease(holder, 100));
  world.report(holder, 0, 0, false);
  const ClientId client = world.come(leaving_after(100 * ms));
  pause(client);
  world.after(99 * ms);
  const RequestId request = world.ask(client, 4);
  world.after(150 * ms);
  EXPECT_EQ(departures(), 0u) << "a thread of it waits for memory";
  world.apply(world.request(holder));
  ASSERT_TRUE(world.is_granted(request));
  world.after(99 * ms);
  EXPECT_EQ(departures(), 0u);
  world.after(ms);
  EXPECT_EQ(departures(), 1u);
}

TEST_F(DeepPauses, AClientThatSharesMemoryStays) {
  const ClientId client = world.come(leaving_after(minute));
  world.tell(ClientsJoined{client, world.come()});
  pause(client);
  world.after(1000 * minute);
  EXPECT_EQ(departures(), 0u);
}

TEST_F(DeepPauses, OnlyAFewLeaveAtOnce) {
  std::vector<ClientId> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(world.come(leaving_after(minute)));
    pause(clients.back());
  }
  world.after(minute);
  EXPECT_EQ(departures(), 2u);
  has_left(clients[0]);
  EXPECT_EQ(departures(), 3u);
  has_left(clients[1]);
  has_left(clients[2]);
  EXPECT_EQ(departures(), 5u);
}

TEST_F(DeepPauses, AClientThatCouldNotLeaveIsNotAskedAgainBeforeItsNextPause) {
  const ClientId client = world.come(leaving_after(minute));
  pause(client);
  world.after(minute);
  world.tell(LeaveEnded{client, LeaveEnded::How::On});
  EXPECT_EQ(stay(client), DeviceStay::On);
  world.after(1000 * minute);
  EXPECT_EQ(departures(), 1u);
  run(client);
  pause(client);
  world.after(minute);
  EXPECT_EQ(departures(), 2u);
}

TEST_F(DeepPauses, AHeldCallBringsTheClientBack) {
  const ClientId client = come_and_leave();
  world.after(1000 * minute);
  EXPECT_EQ(returns(), 0u);
  pause(client, true);
  ASSERT_EQ(returns(), 1u);
  EXPECT_EQ(world.all<ReturnRequested>().front().client, client);
  has_returned(client);
  EXPECT_EQ(stay(client), DeviceStay::On);
  EXPECT_EQ(place().foreign, 5 * GiB) << "what its contexts take is not leased";
  EXPECT_EQ(place().coming_back, 0u);
}

TEST_F(DeepPauses, ARequestBringsTheClientBack) {
  const ClientId client = come_and_leave();
  world.ask(client, 10);
  EXPECT_EQ(returns(), 1u);
}

TEST_F(DeepPauses, ACallThatWaitsDuringTheDepartureBringsTheClientBackAfterIt) {
  const ClientId client = world.come(leaving_after(minute));
  pause(client);
  world.after(minute);
  pause(client, true);
  EXPECT_EQ(returns(), 0u);
  has_left(client);
  EXPECT_EQ(returns(), 1u);
}

TEST_F(DeepPauses, TheReturnWaitsForRoomForTheContexts) {
  const ClientId client = come_and_leave();
  const ClientId other = world.come();
  ASSERT_TRUE(world.lease(other, 97));
  world.report(other, 10, 0, false);
  pause(client, true);
  EXPECT_EQ(returns(), 0u);
  EXPECT_EQ(world.request(other).step, ReclaimStep::Cache);
  EXPECT_EQ(world.request(other).bytes, 2 * GiB);
  world.apply(world.request(other));
  EXPECT_EQ(returns(), 1u);
  EXPECT_EQ(place().coming_back, 5 * GiB);
  EXPECT_FALSE(world.lease(world.come(), 1)) << "the room is kept";
}

TEST_F(DeepPauses, ATurnMakesRoomWhereOthersAreBusy) {
  const ClientId client = come_and_leave();
  const ClientId busy = world.come();
  ASSERT_TRUE(world.lease(busy, 100));
  world.report(busy, 0, 0, false);
  pause(client, true);
  EXPECT_TRUE(world.has_turn(client));
  world.apply(world.request(busy));
  EXPECT_EQ(returns(), 1u);
  world.after(20 * second);
  EXPECT_TRUE(world.has_turn(client)) << "its quantum begins once it has returned";
  has_returned(client);
  EXPECT_TRUE(world.has_turn(client));
}

TEST_F(DeepPauses, ALimitDoesNotCountContexts) {
  const ClientId client = come_and_leave(5);
  ClientTerms limited = leaving_after(minute);
  limited.shares[card].limit = 2 * GiB;
  world.tell(TermsChanged{client, limited});
  pause(client, true);
  EXPECT_EQ(returns(), 1u);
}

TEST_F(DeepPauses, AReturnLeavesRoomForAllThatIsGuaranteedToOthers) {
  const ClientId client = come_and_leave(5);
  const ClientId guaranteed = world.come(terms(96));
  const ClientId borrower = world.come();
  ASSERT_TRUE(world.lease(borrower, 98));
  world.report(borrower, 10, 0, false);
  pause(client, true);
  EXPECT_EQ(returns(), 0u) << "contexts cannot be reclaimed";
  EXPECT_TRUE(world.requests(borrower).empty()) << "what it returns would not help";
  world.tell(TermsChanged{guaranteed, terms(95)});
  world.after(second);
  world.apply(world.request(borrower));
  ASSERT_EQ(returns(), 1u);
  has_returned(client);
  const RequestId request = world.ask(guaranteed, 95);
  world.apply(world.request(borrower));
  EXPECT_TRUE(world.is_granted(request));
}

TEST_F(DeepPauses, AReturnWithoutRoomIsRefusedOnceAndShownAsWaiting) {
  const ClientId client = come_and_leave(5);
  const ClientId guaranteed = world.come(terms(96));
  pause(client, true);
  for (int i = 0; i < 3; ++i) {
    const auto refused = world.all<ReturnRefused>();
    ASSERT_EQ(refused.size(), 1u);
    EXPECT_EQ(refused[0].client, client);
    EXPECT_EQ(refused[0].place, card);
    EXPECT_EQ(refused[0].bytes, 5 * GiB);
    EXPECT_EQ(world.policy.waited_for(client, card), 5 * GiB);
    EXPECT_EQ(world.policy.waited_for(client, other_card), 0u);
    world.after(minute);
  }
  world.tell(ClientLeft{guaranteed});
  world.after(minute);
  ASSERT_EQ(returns(), 1u);
  EXPECT_EQ(world.policy.waited_for(client, card), 0u);
  cannot_return(client);
  world.come(terms(96));
  world.after(minute);
  EXPECT_EQ(world.all<ReturnRefused>().size(), 2u);
}

TEST_F(DeepPauses, WhatIsGuaranteedToAClientHasRoomForItsContexts) {
  const ClientId client = come_and_leave(5);
  ClientTerms guaranteed = leaving_after(minute);
  guaranteed.shares[card].guarantee = 60 * GiB;
  world.tell(TermsChanged{client, guaranteed});
  ASSERT_TRUE(world.lease(world.come(terms(40)), 40));
  pause(client, true);
  EXPECT_EQ(returns(), 1u);
}

TEST_F(DeepPauses, AllDevicesHaveRoomBeforeTheReturnBegins) {
  const ClientId client = world.come(leaving_after(minute));
  pause(client);
  world.after(minute);
  leaves(client);
  world.tell(LeaveEnded{
      client, LeaveEnded::How::Off, {{card, GiB}, {other_card, GiB}, {host, GiB}, {77, GiB}}});
  const ClientId other = world.come();
  ASSERT_TRUE(world.lease(other, 100, other_card));
  world.report(other, 1, 0, false, other_card);
  pause(client, true);
  EXPECT_EQ(returns(), 0u);
  EXPECT_EQ(place().coming_back, GiB);
  world.apply(world.request(other));
  EXPECT_EQ(returns(), 1u);
}

TEST_F(DeepPauses, AReturnThatFailsIsRepeatedAfterARest) {
  const ClientId client = come_and_leave();
  pause(client, true);
  cannot_return(client);
  EXPECT_EQ(stay(client), DeviceStay::Off);
  EXPECT_EQ(place().coming_back, 0u) << "others may have the room meanwhile";
  EXPECT_EQ(world.policy.next_wake(), world.now() + second);
  world.after(second);
  ASSERT_EQ(returns(), 2u);
  cannot_return(client);
  EXPECT_EQ(world.policy.next_wake(), world.now() + 2 * second) << "longer each time";
  for (int i = 0; i < 10; ++i) {
    world.after(minute);
    cannot_return(client);
  }
  EXPECT_EQ(world.policy.next_wake(), world.now() + 30 * second);
  world.after(30 * second);
  has_returned(client);
  EXPECT_EQ(stay(client), DeviceStay::On);
}

TEST_F(DeepPauses, WithoutRoomForALongTimeTheReturnBeginsAnew) {
  const ClientId client = come_and_leave(5);
  world.tell(ForeignUseSeen{card, 98 * GiB});
  pause(client, true);
  EXPECT_EQ(returns(), 0u);
  EXPECT_EQ(stay(client), DeviceStay::Off) << "foreign memory cannot be asked back";
  world.tell(ForeignUseSeen{card, 10 * GiB});
  world.after(second);
  EXPECT_EQ(returns(), 1u);
}

// A departure that neither ended nor could be undone.
TEST_F(DeepPauses, AClientThatStandsHalfwayIsBroughtBackAtOnce) {
  const ClientId client = world.come(leaving_after(minute));
  pause(client);
  world.after(minute);
  leaves(client);
  world.tell(LeaveEnded{client, LeaveEnded::How::Halfway});
  ASSERT_EQ(returns(), 1u);
  cannot_return(client);
  world.after(second);
  ASSERT_EQ(returns(), 2u);
  has_returned(client);
  EXPECT_EQ(stay(client), DeviceStay::On);
  world.after(1000 * minute);
  EXPECT_EQ(departures(), 1u) << "a plain pause is what remains";
}

TEST_F(DeepPauses, AClientThatStandsHalfwayWithoutRoomGetsWhatItSaysThatItLeft) {
  const ClientId client = world.come(leaving_after(minute));
  pause(client);
  world.after(minute);
  leaves(client, {{card, 5 * GiB}});
  world.tell(LeaveEnded{client, LeaveEnded::How::Halfway});
  EXPECT_EQ(place().coming_back, 0u) << "its contexts may still be there";
  cannot_return(client);
  world.after(second);
  EXPECT_EQ(returns(), 2u);
  EXPECT_EQ(place().coming_back, 5 * GiB);
}

// A helper that dies may have restored the contexts.
TEST_F(DeepPauses, AReturnThatStopsHalfwayKeepsItsRoomAndGathersNoMore) {
  const ClientId client = come_and_leave(5);
  const ClientId other = world.come();
  ASSERT_TRUE(world.lease(other, 95));
  world.report(other, 95, 0, false);
  pause(client, true);
  for (std::size_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(returns(), i);
    stops_halfway(client);
    EXPECT_EQ(place().coming_back, 5 * GiB);
    EXPECT_FALSE(world.lease(world.come(), 1));
    world.tell(ForeignUseSeen{card, 5 * GiB});
    EXPECT_EQ(place().foreign, 0u) << "they are in the room that is kept for them";
    world.after(minute);
  }
  EXPECT_TRUE(world.requests(other).empty());
  has_returned(client);
  EXPECT_EQ(place().coming_back, 0u);
  EXPECT_EQ(place().foreign, 5 * GiB);
}

TEST_F(DeepPauses, AClientThatStoppedHalfwayAndIsOffItsDevicesNeedsRoomAgain) {
  const ClientId client = come_and_leave(5);
  pause(client, true);
  stops_halfway(client);
  world.after(second);
  cannot_return(client);
  EXPECT_EQ(place().coming_back, 0u);
  world.after(minute);
  EXPECT_EQ(place().coming_back, 5 * GiB);
}

}  // namespace
}  // namespace cuvmm::test
