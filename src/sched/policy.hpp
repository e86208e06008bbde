// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.hpp"
#include "base/options.hpp"

namespace cuvmm {

// A lane with an operation to issue, as a policy sees it.
struct Candidate {
  int priority = 0;
  int weight = 1;
  std::uint64_t order = 0;          // of its first operation, among all submissions
  std::uint64_t waiting_since = 0;  // since its first operation became the first
  std::uint64_t share_used = 0;     // device time by weight
  std::uint64_t last_turn = 0;      // the number of the last choice that picked it
  std::size_t place = 0;            // among all lanes that wait
};

// Under `priority`, a client gains one priority step for each such time that it has waited.
inline constexpr std::uint64_t aging_step_ns = 50'000'000;

// The index in `candidates` of the lane that goes next. `candidates` must not be empty.
//   fifo         the earliest submission
//   round_robin  the lane chosen the longest ago
//   priority     the highest priority, which rises with waiting time
//   fair         the least device time by weight
std::size_t choose(Schedule policy, std::span<const Candidate> candidates, std::uint64_t now);

// How far a lane may run ahead of the device, so that later choices still matter.
struct Pace {
  std::uint64_t most_ns = 0;           // estimated device time in flight
  std::uint32_t most_operations = 0;   // upper limit; with nothing in flight, one is always allowed
  std::uint32_t least_operations = 1;  // always allowed, however long they take
  bool of_all = false;                 // counts what all lanes have in flight, not only this one
};

// What a policy needs to know about the device's other lanes to pace one.
struct Others {
  bool any_active = false;  // recently had something to do
  bool any_higher = false;  // of a higher priority
};
Pace pace_of(Schedule policy, Others others, Duration window);

}  // namespace cuvmm
