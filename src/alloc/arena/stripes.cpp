// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/stripes.hpp"

#include <algorithm>
#include <utility>

namespace cuvmm::arena {

bool Stripes::are_for(Size block, Size unit) {
  constexpr Size few_blocks = 4;
  if (2 * block > unit) return false;
  return unit % block != 0 || unit / block > few_blocks;
}

Stripes Stripes::of(Size block, Size unit) {
  constexpr Size share_of_waste = 256;  // at most: the end of the last chunk
  Stripes made{block, unit};
  while (made.chunks_ * unit % block > made.chunks_ * unit / share_of_waste) ++made.chunks_;
  return made;
}

std::vector<Stripes::Part> Stripes::parts() const {
  const Size blocks = this->blocks();
  const Size count = std::min(blocks, chunks_ * stripes_a_chunk);
  std::vector<Part> parts;
  Size at = 0;
  for (Size i = 1; i <= count; ++i) {
    const Size end = i == count ? chunks_ * unit_ : blocks * i / count * block_;
    while (at < end) {
      const Size size = std::min(end - at, unit_ - at % unit_);
      parts.push_back({at / unit_, {at % unit_, size}});
      at += size;
    }
  }
  return parts;
}

void StripeLayouts::note(const std::vector<Stripes::Part>& parts) {
  std::vector<OfChunk> chunks;
  for (const Stripes::Part& part : parts) {
    if (part.chunk == chunks.size()) chunks.emplace_back();
    chunks.back().push_back(part.where);
  }
  for (OfChunk& chunk : chunks) {
    if (std::find(layouts_.begin(), layouts_.end(), chunk) != layouts_.end()) continue;
    if (layouts_.size() == most) layouts_.clear();
    layouts_.push_back(std::move(chunk));
  }
}

}  // namespace cuvmm::arena
