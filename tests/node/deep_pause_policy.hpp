// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "policy_world.hpp"

namespace cuvmm::test {

inline constexpr Microseconds minute = 60 * second;

inline ClientTerms leaving_after(Microseconds time) {
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
    leaves(client, {{card, gib * GiB}});
    world.tell(LeaveEnded{client, LeaveEnded::How::Off, {{card, gib * GiB}}});
  }
  // What a client reports during a departure, and during a return.
  void leaves(ClientId client, const std::map<PlaceId, Size>& contexts = {}) {
    report(client, true, contexts);
  }
  void comes_back(ClientId client) { report(client, false); }
  void has_returned(ClientId client) {
    if (world.policy.books().find_client(client) != nullptr) comes_back(client);
    world.tell(ReturnEnded{client, ReturnEnded::How::Back});
  }
  void cannot_return(ClientId client) { world.tell(ReturnEnded{client, ReturnEnded::How::Off}); }
  void stops_halfway(ClientId client) {
    world.tell(ReturnEnded{client, ReturnEnded::How::Halfway});
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
  bool is_off(ClientId client) const { return is_off_devices(stay(client)); }
  std::size_t departures() const { return world.all<LeaveRequested>().size(); }
  std::size_t returns() const { return world.all<ReturnRequested>().size(); }
  const NodePlace& place() const { return *world.policy.books().find_place(card); }

  PolicyWorld world;

 private:
  // As paused as it was.
  void report(ClientId client, bool is_off, const std::map<PlaceId, Size>& contexts = {}) {
    const DeepPauseFacts& deep = world.policy.books().find_client(client)->deep;
    world.tell(PresenceReported{.client = client,
                                .is_paused = deep.is_paused,
                                .has_held_calls = deep.has_held_calls,
                                .is_off_devices = is_off,
                                .contexts = contexts});
  }
};

}  // namespace cuvmm::test
