// SPDX-License-Identifier: Apache-2.0
// What clients of the node service are entitled to, and how long things may take.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/size.hpp"

namespace cuvmm::node {

using ClientId = std::uint64_t;
using RequestId = std::uint64_t;
using Revision = std::uint64_t;
using Microseconds = std::uint64_t;  // a point in time or a length of it, on the caller's clock

// Where memory is leased: a device, or the host.
using PlaceId = std::uint32_t;
enum class PlaceKind : std::uint8_t { Device, Host };

using cuvmm::unlimited;

// A client's entitlement at one place.
struct MemoryShare {
  Size guarantee = 0;
  Size limit = unlimited;
};

struct ClientTerms {
  std::map<PlaceId, MemoryShare> shares;  // none at a place: nothing guaranteed, no limit
  std::uint32_t weight = 1;               // how much of the time it has where clients take turns
  int priority = 0;                       // the lowest is asked for its memory first
  std::string group;                      // clients that wait for each other; empty: by itself

  MemoryShare share_at(PlaceId place) const {
    const auto found = shares.find(place);
    return found == shares.end() ? MemoryShare{} : found->second;
  }
};

struct PolicyTimes {
  Microseconds guarantee_within = 1'000'000;  // a request within the guarantee ends by then
  Microseconds request_within = 600'000'000;  // any other
  Microseconds reclaim_within = 200'000;      // a client does what it was asked, or says why not
  Size moved_per_second = 0;                  // a pause has so much more time; 0: none
  Microseconds stays = 1'000'000;             // what was brought in for one client is left to it
  Microseconds shortest_quantum = 100'000;
  Microseconds longest_quantum = 10'000'000;
  std::uint64_t quantum_per_swap = 10;      // how much longer than the swap a turn is
  Microseconds without_turns = 10'000'000;  // after work that outlasted a turn
};

// What moving so much adds to a deadline.
constexpr Microseconds time_to_move(const PolicyTimes& times, Size bytes) {
  if (times.moved_per_second == 0) return 0;
  return static_cast<Microseconds>(static_cast<double>(bytes) /
                                   static_cast<double>(times.moved_per_second) * 1e6);
}

}  // namespace cuvmm::node
