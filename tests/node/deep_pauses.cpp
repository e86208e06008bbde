// SPDX-License-Identifier: Apache-2.0
// When a paused client leaves its devices, and when it returns.
#include "policy_world.hpp"

namespace cuvmm::test {
namespace {

constexpr Microseconds minute = 60 * second;

ClientTerms leaving_after(Microseconds time) {
  ClientTerms made = terms();
  made.deep_pause_after = time;
  return made;
}

// A client on a card of 100 GiB that is paused at the service's request, with contexts of 5 GiB.
class DeepPauses : public ::testing::Test {
 protected:
  void pause(ClientId client, bool has_held_calls = false) {
    world.tell(PresenceReported{.client = client,
                                .is_paused = true,
                                .has_held_calls = has_held_calls,
                                .is_off_devices = is_off(client)});
  }
  void run(ClientId client) { world.tell(PresenceReported{.client = client}); }
  void has_left(ClientId client, Size gib = 5) {
    world.tell(LeaveEnded{client, LeaveEnded::How::Off, {{card, gib * GiB}}});
  }
  ClientId come_and_leave(Size gib = 5) {
    const ClientId client = world.come(leaving_after(minute));
    pause(client);
    world.after(minute);
    has_left(client, gib);
    EXPECT_EQ(stay(client), DeviceStay::Off);
    return client;
  }
  DeviceStay stay(ClientId client) const {
    return world.policy.books().find_client(client)->deep.stay;
  }
  bool is_off(ClientId client) const {
    return stay(client) != DeviceStay::On && stay(client) != DeviceStay::Leaving;
  }
  std::size_t departures() const { return world.all<LeaveRequested>().size(); }
  std::size_t returns() const { return world.all<ReturnRequested>().size(); }
  const NodePlace& place() const { return *world.policy.books().find_place(card); }

  PolicyWorld world;
};

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
  world.tell(ReturnEnded{client, true});
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
  world.tell(ReturnEnded{client, true});
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

TEST_F(DeepPauses, AllDevicesHaveRoomBeforeTheReturnBegins) {
  const ClientId client = world.come(leaving_after(minute));
  pause(client);
  world.after(minute);
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
  world.tell(ReturnEnded{client, false});
  EXPECT_EQ(stay(client), DeviceStay::Off);
  EXPECT_EQ(place().coming_back, 0u) << "others may have the room meanwhile";
  EXPECT_EQ(world.policy.next_wake(), world.now() + second);
  world.after(second);
  ASSERT_EQ(returns(), 2u);
  world.tell(ReturnEnded{client, false});
  EXPECT_EQ(world.policy.next_wake(), world.now() + 2 * second) << "longer each time";
  for (int i = 0; i < 10; ++i) {
    world.after(minute);
    world.tell(ReturnEnded{client, false});
  }
  EXPECT_EQ(world.policy.next_wake(), world.now() + 30 * second);
  world.after(30 * second);
  world.tell(ReturnEnded{client, true});
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
  world.tell(LeaveEnded{client, LeaveEnded::How::Halfway});
  ASSERT_EQ(returns(), 1u);
  world.tell(ReturnEnded{client, false});
  world.after(second);
  ASSERT_EQ(returns(), 2u);
  world.tell(ReturnEnded{client, true});
  EXPECT_EQ(stay(client), DeviceStay::On);
  world.after(1000 * minute);
  EXPECT_EQ(departures(), 1u) << "a plain pause is what remains";
}

TEST_F(DeepPauses, AReconnectedClientIsBroughtBackWhenACallWaits) {
  const ClientId client = world.come(leaving_after(minute));
  world.tell(PresenceReported{
      .client = client, .is_paused = true, .is_off_devices = true, .contexts = {{card, 2 * GiB}}});
  world.after(1000 * minute);
  EXPECT_EQ(departures(), 0u);
  EXPECT_EQ(returns(), 0u);
  pause(client, true);
  EXPECT_EQ(returns(), 1u);
  EXPECT_EQ(place().coming_back, 2 * GiB);
}

TEST_F(DeepPauses, AClientThatACommandBroughtBackNeedsNoRoomAnyMore) {
  const ClientId client = come_and_leave();
  const ClientId other = world.come();
  ASSERT_TRUE(world.lease(other, 97));
  world.report(other, 0, 0, false);
  pause(client, true);
  EXPECT_EQ(stay(client), DeviceStay::Gathering);
  run(client);
  EXPECT_EQ(stay(client), DeviceStay::On);
  EXPECT_EQ(world.policy.waited_for(client, card), 0u);
  EXPECT_EQ(place().coming_back, 0u);
}

TEST_F(DeepPauses, AClientThatSaysThatItHasLeftAgainGetsNoHelperAtOnce) {
  const ClientId client = come_and_leave();
  pause(client, true);
  for (std::size_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(returns(), i);
    world.tell(ReturnEnded{client, true});
    world.tell(PresenceReported{
        .client = client, .is_paused = true, .has_held_calls = true, .is_off_devices = true});
    EXPECT_EQ(returns(), i);
    world.after(second);
  }
}

TEST_F(DeepPauses, AHelperThatDoesNotEndHoldsUpNobodyElse) {
  std::vector<ClientId> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(world.come(leaving_after(minute)));
    pause(clients.back());
  }
  world.after(minute);
  ASSERT_EQ(departures(), 2u);
  world.after(minute - 1);
  EXPECT_EQ(departures(), 2u);
  world.after(1);
  EXPECT_EQ(departures(), 4u);
  has_left(clients[0]);
  EXPECT_EQ(stay(clients[0]), DeviceStay::Off) << "late, but it has an end";
}

TEST_F(DeepPauses, AReturnThatDoesNotEndKeepsNoRoom) {
  const ClientId client = come_and_leave();
  pause(client, true);
  ASSERT_EQ(place().coming_back, 5 * GiB);
  world.after(minute);
  EXPECT_EQ(place().coming_back, 0u);
  world.tell(ReturnEnded{client, true});
  EXPECT_EQ(stay(client), DeviceStay::On);
}

TEST_F(DeepPauses, OnlySoManyReturnAtOnce) {
  std::vector<ClientId> clients;
  for (int i = 0; i < 10; ++i) clients.push_back(come_and_leave(1));
  for (const ClientId client : clients) pause(client, true);
  EXPECT_EQ(returns(), 8u);
  world.tell(ReturnEnded{clients[0], true});
  EXPECT_EQ(returns(), 9u);
}

TEST_F(DeepPauses, WithoutSuchTermsAClaimToBeOffTheDevicesGetsNoMemory) {
  const ClientId client = world.come();
  world.tell(PresenceReported{.client = client,
                              .is_paused = true,
                              .has_held_calls = true,
                              .is_off_devices = true,
                              .contexts = {{card, 50 * GiB}}});
  EXPECT_EQ(returns(), 1u);
  EXPECT_EQ(place().coming_back, 0u);
}

TEST_F(DeepPauses, AClientThatACommandTookOffStaysOffAlthoughItAsksForMemory) {
  const ClientId client = world.come(leaving_after(minute));
  ASSERT_TRUE(world.lease(world.come(), 90));
  world.ask(client, 20);
  world.tell(PresenceReported{.client = client, .is_off_devices = true});
  EXPECT_EQ(stay(client), DeviceStay::Off);
  EXPECT_EQ(returns(), 0u);
}

TEST_F(DeepPauses, AReportThatCrossesAHelperChangesNothing) {
  const ClientId client = world.come(leaving_after(minute));
  pause(client);
  world.after(minute);
  world.tell(PresenceReported{.client = client, .is_paused = true, .is_off_devices = true});
  EXPECT_EQ(stay(client), DeviceStay::Leaving);
  has_left(client);
  pause(client, true);
  world.tell(PresenceReported{.client = client, .is_paused = true});
  EXPECT_EQ(stay(client), DeviceStay::Returning);
}

TEST_F(DeepPauses, AClientThatEndsLeavesNoRoomBehind) {
  const ClientId client = come_and_leave();
  pause(client, true);
  ASSERT_EQ(place().coming_back, 5 * GiB);
  world.tell(ClientLeft{client});
  EXPECT_EQ(place().coming_back, 0u);
  EXPECT_FALSE(world.policy.next_wake().has_value());
  world.tell(ReturnEnded{client, true});
  EXPECT_EQ(place().foreign, 0u);
}

// NVML may see the contexts before the helper says that they are there.
TEST_F(DeepPauses, ContextsOnTheirWayBackDoNotCountTwice) {
  world.tell(ForeignUseSeen{card, 10 * GiB});
  const ClientId client = come_and_leave(5);
  pause(client, true);
  world.tell(ForeignUseSeen{card, 13 * GiB});
  EXPECT_EQ(place().foreign, 10 * GiB);
  world.tell(ForeignUseSeen{card, 17 * GiB});
  EXPECT_EQ(place().foreign, 12 * GiB) << "2 GiB are somebody else's";
  world.tell(ForeignUseSeen{card, 8 * GiB});
  EXPECT_EQ(place().foreign, 8 * GiB);
  world.tell(ReturnEnded{client, true});
  EXPECT_EQ(place().foreign, 13 * GiB);
}

}  // namespace
}  // namespace cuvmm::test
