// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "sim/cuda.hpp"
#include "sim/views.hpp"

namespace cuvmm::sim {

// A freed block of the driver. Its addresses stay reserved, its home device's view still maps it
// but without access, and its bytes are a hole. Restoring access takes a fifth of the time of a new
// mapping, and mapping takes most of the time of a blocking allocation here.
struct SpareBlock {
  CUdeviceptr address = 0;
  int device = 0;  // ordinal of its home device
  Extent extent;
};

// The few blocks that are kept, oldest first. Guarded by the lock of the object that contains it.
class SpareBlocks {
 public:
  static bool serves(Size size) { return size <= largest; }

  // Returns the newest block of this device and size.
  std::optional<SpareBlock> take(int device, Size size);
  // Returns the block that was dropped to make room, if any.
  std::optional<SpareBlock> put(const SpareBlock& block);

 private:
  static constexpr Size largest = 64 * MiB;
  static constexpr std::size_t most = 32;

  std::vector<SpareBlock> blocks_;
};

}  // namespace cuvmm::sim
