// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/options.hpp"
#include "base/size.hpp"

namespace cuvmm {

// The size of the chunks by which an arena grows. Mapping a chunk costs about the same whatever its
// size, so large chunks are fast. But only wholly free chunks can move, so free memory between live
// blocks in large chunks cannot serve the last allocations under a limit.
struct ChunkPolicy {
  // No chunk is larger, however much memory there is.
  Size largest = 64 * MiB;
  // With these values, found by replaying bench/traces, the traces finish at 1.005 times the peak
  // of live memory, and take at most a few hundred chunks without a limit. Part of a chunk may stay
  // unusable, so a chunk is at most this share of all memory, and smaller if little is left.
  Size share_of_all = 2048;
  Size share_of_room = 1024;
  // Beyond what it needs, an arena grows by at most this share of its size, so that a small one
  // takes little.
  Size share_of_mapped = 32;

  // The memory available when a chunk's size is chosen.
  struct Supply {
    Size held = 0;    // the store's chunks in use, by any holder
    Size room = 0;    // available in addition
    Size mapped = 0;  // by this arena
  };

  // The size of the next chunk if `need` bytes are missing in a gap of `gap` bytes: `smallest`
  // times a power of two, and no larger than the gap, which must have at least `smallest` bytes.
  Size choose(Size need, Size gap, Size smallest, Grow grow, const Supply& supply) const;

 private:
  Size most(const Supply& supply) const;
};

}  // namespace cuvmm
