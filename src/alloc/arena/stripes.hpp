// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "vmm/stretch.hpp"

namespace cuvmm::arena {

// How small blocks of equal size share chunks from the start. A few chunks, one after another, are
// cut into stripes of one or a few blocks, and each stripe lies at granules of addresses of its
// own. What is live behind a granule then has few possible patterns, so that two granules with the
// same stripe of different chunks often fit into one chunk.
class Stripes {
 public:
  // Not for blocks of which a few fill a granule anyway. `unit` is the size of a chunk and of a
  // granule of addresses.
  static bool are_for(Size block, Size unit);
  static Stripes of(Size block, Size unit);
  static Size blocks_a_stripe(Size block, Size unit) {
    return std::max(unit / block / stripes_a_chunk, Size{1});
  }

  Size chunks() const { return chunks_; }
  Size blocks() const { return chunks_ * unit_ / block_; }

  // What one granule of addresses has of its chunk; the other granules have the rest.
  struct Part {
    Size chunk;
    Stretch where;  // in the chunk, and in the granule
  };
  // Of all granules, in order.
  std::vector<Part> parts() const;

 private:
  static constexpr Size stripes_a_chunk = 8;  // at most

  Stripes(Size block, Size unit) : block_(block), unit_(unit) {}

  Size block_;
  Size unit_;
  Size chunks_ = 1;
};

// How chunks were cut into stripes in an arena, for the last few sizes of blocks.
class StripeLayouts {
 public:
  using OfChunk = std::vector<Stretch>;

  void note(const std::vector<Stripes::Part>& parts);
  const std::vector<OfChunk>& all() const { return layouts_; }

 private:
  static constexpr std::size_t most = 64;
  std::vector<OfChunk> layouts_;
};

}  // namespace cuvmm::arena
