// SPDX-License-Identifier: Apache-2.0
// The entitlements of the node service's clients, and the policy's time limits.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/size.hpp"

namespace cuvmm::node {

using ClientId = std::uint64_t;
using RequestId = std::uint64_t;
using Revision = std::uint64_t;
using Microseconds = std::uint64_t;  // a point in time or a duration, on the caller's clock

// Identifies shared memory or a shared event. A digest of its handle, which only the processes that
// share it have.
using ShareKey = std::array<std::uint8_t, 16>;

// A device or the host, where memory is leased.
using PlaceId = std::uint32_t;
enum class PlaceKind : std::uint8_t { Device, Host };

using cuvmm::unlimited;

// A client's entitlement at one place.
struct MemoryShare {
  Size guarantee = 0;
  Size limit = unlimited;
};

struct ClientTerms {
  std::map<PlaceId, MemoryShare> shares;  // a place without an entry: no guarantee, no limit
  std::uint32_t weight = 1;               // its share of the time when clients take turns
  int priority = 0;                       // memory is reclaimed from the lowest first
  std::string group;                      // clients that wait for each other; empty: its own group
  // Set if the client's claims are not trusted: what it says it holds counts only as far as there
  // is room, and all clients of the user together stay within PlaceConfigured::most_of_a_user.
  std::optional<std::uint32_t> untrusted_user = {};
  // A paused client leaves its devices after this long without a waiting call; none: never.
  std::optional<Microseconds> deep_pause_after = {};

  MemoryShare share_at(PlaceId place) const {
    const auto found = shares.find(place);
    return found == shares.end() ? MemoryShare{} : found->second;
  }
};

// Where a client's contexts are.
enum class DeviceStay : std::uint8_t {
  On,
  Leaving,
  Off,
  Gathering,  // room for them is being gathered
  Returning,
};
// Whether the contexts have left, or are on their way back.
constexpr bool is_off_devices(DeviceStay stay) {
  return stay != DeviceStay::On && stay != DeviceStay::Leaving;
}

struct PolicyTimes {
  Microseconds guarantee_within = 1'000'000;  // to settle a request within the guarantee
  Microseconds request_within = 600'000'000;  // to settle any other request
  Microseconds reclaim_within = 200'000;      // for a client to answer a reclaim request
  Size moved_per_second = 0;                  // extends the deadlines of moves; 0: not at all
  Microseconds reports_within = 300'000;      // for a client to report what it has freed
  Microseconds stays = 1'000'000;             // minimum stay once others gave up memory for it
  Microseconds shortest_quantum = 100'000;
  Microseconds longest_quantum = 10'000'000;
  // A turn's length as a multiple of the time that getting its memory took. Bringing the contents
  // back takes as long again, so this keeps both below a tenth of the time.
  std::uint64_t quantum_per_swap = 25;
  // Work outlasts a turn if it is in flight for at least `outlasts` and the length of its group's
  // turn, which is computed as if swapping the group's memory takes at least the time at this rate.
  Microseconds outlasts = 100'000;
  Size swapped_per_second = 20 * GiB;
  Microseconds without_turns = 10'000'000;  // suspension after work outlasts a turn
  // How long memory that a pause could not move is expected to stay where it is.
  Microseconds unmovable_for = 10'000'000;
  // The wait after a client could not return to its devices; doubles with each failure.
  Microseconds shortest_return_rest = 1'000'000;
  Microseconds longest_return_rest = 30'000'000;
  Microseconds longest_helper = 60'000'000;
  std::size_t return_at_once = 8;
  std::size_t leave_at_once = 2;  // few, since each helper starts the driver
};

constexpr Microseconds time_at_rate(Size bytes, Size per_second) {
  return static_cast<Microseconds>(static_cast<double>(bytes) / static_cast<double>(per_second) *
                                   1e6);
}

// The time that moving `bytes` adds to a deadline.
constexpr Microseconds time_to_move(const PolicyTimes& times, Size bytes) {
  return times.moved_per_second == 0 ? 0 : time_at_rate(bytes, times.moved_per_second);
}

}  // namespace cuvmm::node
