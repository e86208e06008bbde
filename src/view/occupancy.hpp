// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "view/live_blocks.hpp"
#include "view/mapped_memory.hpp"

namespace cuvmm::view {

// How much memory is free at one moment, and how much of it can be used by a single allocation.
//
// An allocation can be assembled from any completely free granules, wherever they lie: the driver
// does so for large allocations, and cuvmm for all. With the native allocator, a granule with one
// live byte cannot be reused; with cuvmm, a chunk with one cannot.
struct Occupancy {
  Size free = 0;
  Size in_one_piece = 0;  // free bytes in completely free granules

  // 0: all free memory fits one allocation. 1: none of it does.
  double fragmentation() const {
    return free == 0 ? 0 : 1 - static_cast<double>(in_one_piece) / static_cast<double>(free);
  }
};

class OccupancyCounter {
 public:
  Occupancy count(const LiveBlocks& live, const MappedMemory& mapped, Size memory);

 private:
  struct Shared {
    std::uint64_t key;  // an address granule, or a chunk
    Size size;
    bool is_chunk;
    auto operator<=>(const Shared&) const = default;
  };
  void touch(const LiveBlock& block, const MappedMemory& mapped);
  void touch_granules(const Span& span);

  Size whole_ = 0;               // granules entirely within one block
  std::vector<Shared> touched_;  // granules and chunks that may hold several blocks
};

}  // namespace cuvmm::view
