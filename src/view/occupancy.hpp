// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "view/live_blocks.hpp"
#include "view/mapped_memory.hpp"

namespace cuvmm::view {

// How much memory is free at one moment, and how much of that can be had as one allocation.
//
// Memory can be put together from any granules that hold nothing, wherever they lie: the driver
// does so for large allocations, and cuvmm for all. A granule that holds one live byte cannot be
// given to anybody, natively; and neither can a chunk of ours.
struct Occupancy {
  Size free = 0;
  Size in_one_piece = 0;  // what is free in granules that hold nothing

  // 0: all that is free can be had at once. 1: nothing of it.
  double fragmentation() const {
    return free == 0 ? 0 : 1 - static_cast<double>(in_one_piece) / static_cast<double>(free);
  }
};

class OccupancyCounter {
 public:
  Occupancy count(const LiveBlocks& live, const MappedMemory& mapped, Size memory);

 private:
  struct Shared {
    std::uint64_t key;  // of a granule of addresses, or a chunk
    Size size;
    bool is_chunk;
    auto operator<=>(const Shared&) const = default;
  };
  void touch(const LiveBlock& block, const MappedMemory& mapped);
  void touch_granules(const Span& span);

  Size whole_ = 0;               // granules that one block fills alone
  std::vector<Shared> touched_;  // those that may hold several
};

}  // namespace cuvmm::view
