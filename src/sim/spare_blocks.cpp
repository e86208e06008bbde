// SPDX-License-Identifier: Apache-2.0
#include "sim/spare_blocks.hpp"

#include <algorithm>
#include <iterator>

namespace cuvmm::sim {

std::optional<SpareBlock> SpareBlocks::take(int device, Size size) {
  const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(), [&](const SpareBlock& block) {
    return block.device == device && block.extent.size == size;
  });
  if (found == blocks_.rend()) return std::nullopt;
  const SpareBlock block = *found;
  blocks_.erase(std::prev(found.base()));
  return block;
}

std::optional<SpareBlock> SpareBlocks::put(const SpareBlock& block) {
  std::optional<SpareBlock> oldest;
  if (blocks_.size() == most) {
    oldest = blocks_.front();
    blocks_.erase(blocks_.begin());
  }
  blocks_.push_back(block);
  return oldest;
}

}  // namespace cuvmm::sim
