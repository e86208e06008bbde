// SPDX-License-Identifier: Apache-2.0
// What a client that can leave its devices reports at any time, and helpers that do not end.
#include "deep_pause_policy.hpp"

namespace cuvmm::test {
namespace {

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
    has_returned(client);
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

TEST_F(DeepPauses, AReturnThatDoesNotEndKeepsItsRoom) {
  const ClientId client = come_and_leave();
  pause(client, true);
  ASSERT_EQ(place().coming_back, 5 * GiB);
  world.after(10 * minute);
  EXPECT_EQ(place().coming_back, 5 * GiB) << "the driver may need it at any time";
  has_returned(client);
  EXPECT_EQ(stay(client), DeviceStay::On);
}

TEST_F(DeepPauses, OnlySoManyReturnAtOnce) {
  std::vector<ClientId> clients;
  for (int i = 0; i < 10; ++i) clients.push_back(come_and_leave(1));
  for (const ClientId client : clients) pause(client, true);
  EXPECT_EQ(returns(), 8u);
  has_returned(clients[0]);
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

TEST_F(DeepPauses, AReportThatCrossesAHelperChangesNothingBeforeItsEnd) {
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

// A command may act between what a helper does and the helper's end.
TEST_F(DeepPauses, AReportThatCrossesAHelperAppliesOnceItHasEnded) {
  const ClientId client = world.come(leaving_after(minute));
  pause(client);
  world.after(minute);
  leaves(client);
  run(client);
  world.tell(LeaveEnded{client, LeaveEnded::How::Off, {{card, 5 * GiB}}});
  EXPECT_EQ(stay(client), DeviceStay::On);
  EXPECT_EQ(returns(), 0u);
  pause(client);
  world.after(minute);
  has_left(client);
  pause(client, true);
  comes_back(client);
  leaves(client, {{card, 2 * GiB}});
  world.tell(ReturnEnded{client, ReturnEnded::How::Back});
  EXPECT_EQ(stay(client), DeviceStay::Off);
  world.after(second);
  EXPECT_EQ(returns(), 2u);
  EXPECT_EQ(place().coming_back, 2 * GiB);
}

TEST_F(DeepPauses, AClientThatACommandBroughtBackAfterAHelperDiedKeepsNoRoom) {
  const ClientId client = come_and_leave();
  pause(client, true);
  stops_halfway(client);
  run(client);
  EXPECT_EQ(stay(client), DeviceStay::On);
  EXPECT_EQ(place().coming_back, 0u);
  world.after(minute);
  EXPECT_EQ(returns(), 1u);
}

TEST_F(DeepPauses, AClientThatEndsLeavesNoRoomBehind) {
  const ClientId client = come_and_leave();
  pause(client, true);
  ASSERT_EQ(place().coming_back, 5 * GiB);
  world.tell(ClientLeft{client});
  EXPECT_EQ(place().coming_back, 0u);
  EXPECT_FALSE(world.policy.next_wake().has_value());
  has_returned(client);
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
  has_returned(client);
  EXPECT_EQ(place().foreign, 13 * GiB);
}

}  // namespace
}  // namespace cuvmm::test
