// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/options.hpp"
#include "base/size.hpp"

namespace cuvmm {

// How large the chunks are that an arena grows by. Mapping costs about the same for each chunk
// whatever its size, so large ones are fast; but only chunks that are wholly free can move, so
// what lies free between live blocks in large ones is lost to the last bytes under a limit.
struct ChunkPolicy {
  // No chunk is larger, however much memory there is.
  Size largest = 64 * MiB;

  // What there is when a chunk is chosen.
  struct Supply {
    Size held = 0;    // of the store's chunks, by whomever
    Size room = 0;    // that could be had beside it
    Size mapped = 0;  // by this arena
  };

  // The size of the next chunk where `need` bytes are missing and `gap` are there to lay it in:
  // `smallest` times a power of two, and no larger than the gap, of which there is at least
  // `smallest`.
  Size choose(Size need, Size gap, Size smallest, Grow grow, const Supply& supply) const;

 private:
  Size most(const Supply& supply) const;
};

}  // namespace cuvmm
