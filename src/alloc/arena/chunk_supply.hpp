// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/arena/arena_state.hpp"
#include "alloc/arena/build.hpp"

namespace cuvmm::arena {

// Gets the chunks that a build lacks, into its hand: from the store, from free chunks of the arena
// that fit no gap, or spilled ones. Called without the arena's lock.
class ChunkSupply {
 public:
  // `arena`: the reclaim client that the store skips when a build takes chunks from it.
  ChunkSupply(ArenaState& state, ReclaimClient& arena) : state_(state), arena_(arena) {}

  // Takes what is lacking, or as much as there is.
  Result<void> take(Build& build);
  // Returns whether the build has more in hand now, or more chunks may move.
  Result<bool> take_under_pressure(Build& build);

 private:
  // A chunk of `size`. If the store would have to release free ones for it, a smaller free one.
  Result<ChunkRef> take_chunk(Size size);
  Result<void> take_spilled(Build& build);

  ArenaState& state_;
  ReclaimClient& arena_;
};

}  // namespace cuvmm::arena
