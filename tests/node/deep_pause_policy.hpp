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
  bool is_off(ClientId client) const { return is_off_devices(stay(client)); }
  std::size_t departures() const { return world.all<LeaveRequested>().size(); }
  std::size_t returns() const { return world.all<ReturnRequested>().size(); }
  const NodePlace& place() const { return *world.policy.books().find_place(card); }

  PolicyWorld world;
};

}  // namespace cuvmm::test
