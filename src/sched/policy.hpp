// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.hpp"
#include "base/options.hpp"

namespace cuvmm {

// A lane that has something to issue, as a policy sees it.
struct Candidate {
  int priority = 0;
  int weight = 1;
  std::uint64_t order = 0;          // of its first operation, among all submissions
  std::uint64_t waiting_since = 0;  // its first operation, as the first
  std::uint64_t share_used = 0;     // device time by weight
  std::uint64_t last_turn = 0;      // when it was chosen last: the number of that choice
};

// Under `priority` a client is worth one step more for each such time that it has waited.
inline constexpr std::uint64_t aging_step_ns = 50'000'000;

// Who goes next: an index of `candidates`, which are not none.
//   fifo         who submitted first
//   round_robin  who was chosen the longest ago
//   priority     the highest priority, which grows with waiting
//   fair         who has had the least of the device for his weight
std::size_t choose(Schedule policy, std::span<const Candidate> candidates, std::uint64_t now);

// How far a lane may run ahead of the device, so that a later choice still means something.
struct Pace {
  std::uint64_t most_ns = 0;           // of device time in flight, as far as it can be estimated
  std::uint32_t most_operations = 0;   // at the most; one that finds nothing in flight always may
  std::uint32_t least_operations = 1;  // these may, however long they take
  bool of_all = false;  // what all lanes have in flight counts, not only that of this one
};

// What a policy has to know of the other lanes of the device in order to pace one.
struct Others {
  bool any_active = false;  // had something to do not long ago
  bool any_higher = false;  // of a higher priority
};
Pace pace_of(Schedule policy, Others others, Duration window);

}  // namespace cuvmm
