// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "sched/client.hpp"
#include "sched/driver_side.hpp"
#include "sched/estimates.hpp"

namespace cuvmm {

// How many operations are in flight, and how long they are estimated to take.
struct Load {
  std::uint32_t operations = 0;
  std::uint64_t ns = 0;

  void operator+=(const Load& more) {
    operations += more.operations;
    ns += more.ns;
  }
  void operator-=(const Load& less) {
    operations -= std::min(operations, less.operations);
    ns -= std::min(ns, less.ns);
  }
};

inline Load load_of(const Batch& batch) {
  return {batch.operations, batch.estimate_ns};
}

// The issuing thread's state of a lane.
struct LaneState {
  Lane* lane = nullptr;
  Estimates estimates;
  std::uint64_t share_used = 0;  // device time by weight
  std::uint64_t last_turn = 0;
  std::uint64_t issued_at = 0;  // time of the last issue
  std::uint64_t active_at = 0;  // last time it had something to issue or in flight
  std::uint64_t done_at = 0;    // last completion; the current time while nothing is in flight
  Load in_flight;
  Load held;                      // as much of it as is on streams that make no progress
  std::uint32_t let_through = 0;  // operations exempt from pacing
  std::uint64_t let_through_at = 0;
  std::uint32_t next_to_let_through = 1;  // while a thread waits for it; doubles until one is done
  std::uint64_t warned_of = 0;            // number of the operation last warned about

  const Client& client() const { return lane->client(); }
  std::uint64_t by_weight(std::uint64_t ns) const {
    return ns / static_cast<std::uint64_t>(client().weight());
  }
};

}  // namespace cuvmm
