// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.hpp"
#include "replay/replay_trace.hpp"

namespace cuvmm::replay {

struct PolicyCounters {
  Size physical_peak_bytes = 0;
  std::uint64_t creates = 0;           // allocations of physical memory from the driver
  std::uint64_t moves = 0;             // chunks remapped to other addresses
  std::uint64_t retries = 0;           // allocations that first had to release cached memory
  std::uint64_t compacted_blocks = 0;  // or granules: live memory that moved, at the same addresses
  double modelled_us = 0;              // time of the driver calls on the measured card
};

// Serves a trace's requests: a real allocator or a model of one.
class Policy {
 public:
  virtual ~Policy() = default;

  // OutOfMemory if it has no room for it.
  virtual Result<void> allocate(const ReplayEvent& event) = 0;
  // Only for a block whose allocation succeeded.
  virtual Result<void> release(const ReplayEvent& event) = 0;

  virtual PolicyCounters counters() const = 0;
};

// The result of playing a trace.
struct Outcome {
  bool completed = false;
  std::size_t events = 0;  // events played
  Error refusal;           // of the next event, if it did not complete
  PolicyCounters counters;
};

// Plays the trace. Calls `progress` from time to time with a value from 0 to 1.
Outcome play(const ReplayTrace& trace, Policy& policy,
             const std::function<void(double)>& progress = {});

}  // namespace cuvmm::replay
