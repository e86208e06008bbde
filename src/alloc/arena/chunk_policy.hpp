// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/options.hpp"
#include "base/size.hpp"

namespace cuvmm {

// How large the chunks are that an arena grows by. Mapping costs about the same for each chunk
// whatever its size, so large ones are fast; but only chunks that are wholly free can move, so
// small ones are what the last bytes are found with.
struct ChunkPolicy {
  Size largest = 64 * MiB;

  // What there is when a chunk is chosen.
  struct Supply {
    Size held = 0;    // physical memory of the device that is held, by whomever
    Size room = 0;    // that could be had
    Size mapped = 0;  // by this arena
  };

  // The size of the next chunk where `need` bytes are missing and `gap` are there to lay it in:
  // `smallest` times a power of two, and no larger than the gap, of which it has at least
  // `smallest`.
  Size choose(Size need, Size gap, Size smallest, Grow grow, const Supply& supply) const;

  // No chunk is larger, by what there is.
  Size most(const Supply& supply) const;
};

}  // namespace cuvmm
