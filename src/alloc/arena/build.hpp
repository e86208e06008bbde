// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "alloc/arena/gap_fill.hpp"
#include "alloc/memory_pressure.hpp"
#include "base/error.hpp"
#include "base/lock.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm::arena {

// An allocation for which no free range was large enough, and the chunks that it has taken so far.
// Those that it does not use return to the store when it ends.
struct Build {
  Size size;
  StreamId stream;
  MemoryPressure& pressure;
  // How many blocks of this size to make a place for, including this one.
  Size places = 1;
  bool in_stripes = false;  // how to lay several; then none of the chunks is larger than the unit

  std::vector<ChunkRef> hand;
  Size largest_chunk = unlimited;  // the store had no larger one

  // The device had no more chunks.
  bool is_under_pressure = false;
  // Other than Near if memory of the device did not suffice, so that spilled memory is used.
  ResidencyFilter reach = ResidencyFilter::Near;
  int compactions = 0;           // so far
  bool puts_off_moving = false;  // live memory moves only if spilling fails
  bool can_spill = true;         // until it has failed
  Error refusal;

  // The gaps that lacked memory at the last attempt; empty if it found no addresses.
  std::vector<GapFill::Lack> lacks;

  Size place_bytes() const { return size * places; }
  Size hand_bytes() const {
    Size bytes = 0;
    for (const ChunkRef& chunk : hand) bytes += chunk->size();
    return bytes;
  }
  Size lacking_bytes() const {
    Size bytes = 0;
    for (const GapFill::Lack& lack : lacks) bytes += lack.need;
    return bytes;
  }
};

// Builds under pressure run one after the other, and each waits until no other build has chunks in
// hand before it gives up. Otherwise two builds, each holding half of the last memory, would both
// fail. All functions are called under the arena's lock, which they release while they wait.
class BuildTurns {
 public:
  // One build, from start to end.
  class Turn {
   public:
    explicit Turn(BuildTurns& turns) : turns_(turns) { ++turns_.working_; }
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    bool take_now();
    // Waits for the turn. The build must have no chunks in hand. Returns false on timeout.
    bool take(Holding& holding, std::uint64_t until);
    // Waits until no other build has chunks in hand. Returns false if none had any, or on timeout.
    bool wait_for_others(Holding& holding, std::uint64_t until);

   private:
    BuildTurns& turns_;
    bool is_mine_ = false;
  };

 private:
  int working_ = 0;  // builds that are not waiting for their turn
  bool is_taken_ = false;
  Condition changed_;
};

}  // namespace cuvmm::arena
