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
  std::uint64_t creates = 0;  // times that physical memory was taken from the driver
  std::uint64_t moves = 0;    // chunks that got other addresses
  std::uint64_t retries = 0;  // allocations that had to wait until cached memory was released
  std::uint64_t compacted_blocks = 0;  // live ones whose memory was moved, at the same addresses
  double modelled_us = 0;  // that the driver's calls would have taken on the measured card
};

// Somebody who serves a trace's requests: a real allocator or a model of one.
class Policy {
 public:
  virtual ~Policy() = default;

  // OutOfMemory where it has no place for it.
  virtual Result<void> allocate(const ReplayEvent& event) = 0;
  // Of a block that it gave a place.
  virtual Result<void> release(const ReplayEvent& event) = 0;

  virtual PolicyCounters counters() const = 0;
};

// What came of a trace.
struct Outcome {
  bool completed = false;
  std::size_t events = 0;  // that were played
  Error refusal;           // of the one after them, where it did not complete
  PolicyCounters counters;
};

// Tells now and then, from 0 to 1, how far it has come.
Outcome play(const ReplayTrace& trace, Policy& policy,
             const std::function<void(double)>& progress = {});

}  // namespace cuvmm::replay
