// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "sim/cuda.hpp"
#include "sim/views.hpp"

namespace cuvmm::sim {

// A block of the driver's own that was freed. Its addresses stay reserved and its home's view shows
// it without access; its bytes are a hole. Allowing access again costs a fifth of showing anew,
// which is most of what a blocking allocation takes here.
struct SpareBlock {
  CUdeviceptr address = 0;
  int device = 0;  // ordinal of its home
  Extent extent;
};

// The few that are kept, the oldest first. Guarded by whose member it is.
class SpareBlocks {
 public:
  static bool serves(Size size) { return size <= largest; }

  // The newest of this device and size.
  std::optional<SpareBlock> take(int device, Size size);
  // Returns the one that had to make room.
  std::optional<SpareBlock> put(const SpareBlock& block);

 private:
  static constexpr Size largest = 64 * MiB;
  static constexpr std::size_t most = 32;

  std::vector<SpareBlock> blocks_;
};

}  // namespace cuvmm::sim
