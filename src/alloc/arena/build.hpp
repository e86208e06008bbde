// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "alloc/arena/gap_fill.hpp"
#include "base/error.hpp"
#include "base/lock.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm::arena {

// An allocation for which no free range was large enough, and the chunks that it has got so far.
// What is left of them goes back to the store with it.
struct Build {
  Size size;
  StreamId stream;

  std::vector<ChunkRef> hand;
  Size largest_chunk = unlimited;  // the store had none that was larger

  // The device had no chunk at all.
  bool is_under_pressure = false;
  // Not only near: nothing on the device could be made to do, so that spilled memory will.
  ResidencyFilter reach = ResidencyFilter::Near;
  std::uint64_t until = 0;  // no longer, then
  Error refusal;

  // What was missing when it was last tried; nothing where no addresses were found.
  std::vector<GapFill::Lack> lacks;

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

// Builds under pressure go one after the other, and each waits for the others' chunks before it
// gives up: else two of them, each with a half of the last memory in hand, would both be refused.
// Everything is called under the arena's lock, which waiting gives back.
class BuildTurns {
 public:
  // One build, from its beginning to its end.
  class Turn {
   public:
    explicit Turn(BuildTurns& turns) : turns_(turns) { ++turns_.working_; }
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    bool take_now();
    // Waits for it, with no chunks in hand. False: it did not come in time.
    bool take(Holding& holding, std::uint64_t until);
    // Until nobody else has chunks in hand. False where that was so already, or not in time.
    bool wait_for_others(Holding& holding, std::uint64_t until);

   private:
    BuildTurns& turns_;
    bool is_mine_ = false;
  };

 private:
  int working_ = 0;  // builds, those excepted that wait for their turn
  bool is_taken_ = false;
  Condition changed_;
};

}  // namespace cuvmm::arena
