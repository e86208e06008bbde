// SPDX-License-Identifier: Apache-2.0
#include "view/occupancy.hpp"

#include <algorithm>

namespace cuvmm::view {

void OccupancyCounter::touch_granules(const Span& span) {
  const std::uint64_t first = round_down(span.begin, usual_granule);
  const std::uint64_t last = round_down(span.end - 1, usual_granule);
  for (const std::uint64_t granule : {first, last}) {
    touched_.push_back({granule, usual_granule, false});
  }
  if (last > first) whole_ += last - first - usual_granule;
}

void OccupancyCounter::touch(const LiveBlock& block, const MappedMemory& mapped) {
  for (std::uint64_t at = block.address; at < block.end();) {
    const auto* piece = block.is_native() ? nullptr : mapped.at(at);
    if (piece == nullptr) return touch_granules({at, block.end()});
    const Span span{at, std::min(piece->span.end, block.end())};
    if (piece->chunk != 0) {
      touched_.push_back({piece->chunk, piece->span.size(), true});
    } else {
      touch_granules(span);
    }
    at = span.end;
  }
}

Occupancy OccupancyCounter::count(const LiveBlocks& live, const MappedMemory& mapped, Size memory) {
  whole_ = 0;
  touched_.clear();
  Size held = 0;
  live.for_each([&](const LiveBlock& block) {
    if (block.granted == 0) return;
    held += block.granted;
    touch(block, mapped);
  });
  std::sort(touched_.begin(), touched_.end());
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  Size touched = whole_;
  for (const Shared& one : touched_) touched += one.size;
  const Size free = memory > held ? memory - held : 0;
  return {.free = free, .in_one_piece = std::min(free, memory > touched ? memory - touched : 0)};
}

}  // namespace cuvmm::view
