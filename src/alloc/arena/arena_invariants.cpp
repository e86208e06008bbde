// SPDX-License-Identifier: Apache-2.0
// The invariant check of a whole arena.
#include <string>
#include <unordered_set>

#include "alloc/arena/arena.hpp"

namespace cuvmm {

using arena::Range;
using arena::StreamCache;
using arena::Tile;
using arena::TileKind;

InvariantViolation Arena::violation() const {
  std::unordered_set<const Block*> cached;
  Size cached_bytes = 0;
  for (const StreamCache& cache : caches_) {
    const Holding holding = cache.lock();
    if (InvariantViolation found = cache.violation()) return found;
    cache.for_each([&](const Block& block) { cached.insert(&block); });
    cached_bytes += cache.bytes();
  }

  const Holding holding{lock_};
  if (InvariantViolation found = layout_->violation()) return found;
  if (InvariantViolation found = mapping_.violation()) return found;
  const auto at = [](const Stretch& where, const char* what) {
    return "arena: at offset " + std::to_string(where.offset) + ": " + what;
  };

  // Every tile except the holes has memory, and each chunk lies behind the right tiles.
  Size mapped = 0;
  std::size_t cached_tiles = 0;
  for (const Tile* tile = layout_->first(); tile != nullptr; tile = tile->after) {
    const Stretch where = layout_->stretch_of(*tile);
    if (tile->kind == TileKind::Hole) {
      if (!mapping_.chunks_in(where).empty()) return at(where, "a chunk lies in a hole");
      continue;
    }
    mapped += where.size;
    if (!mapping_.covers(where)) return at(where, "memory is missing");
    for (const MappedChunk& chunk : mapping_.chunks_in(where)) {
      if (tile->kind != TileKind::Broken && !(chunk.access == access_)) {
        return at(where, "a chunk has other rights");
      }
      const Residency chunk_residency = residency(chunk.chunk->location(), settings_.device);
      if (tile->kind == TileKind::Free &&
          static_cast<const Range*>(tile)->residency != chunk_residency) {
        return at(where, "it does not lie where it is said to");
      }
      if (tile->kind == TileKind::Block && chunk_residency == Residency::Far &&
          static_cast<const Block*>(tile)->residency == Residency::Near) {
        return at(where, "a spilled chunk is not counted as spilled");
      }
    }
    if (tile->kind == TileKind::Free) {
      const Range& range = static_cast<const Range&>(*tile);
      Range unknown;
      unknown.where = range.where;
      if (range.knows_whole && !(range.whole == arena::WholeChunks{mapping_}.of(unknown))) {
        return at(where, "it is wrong about its whole chunks");
      }
    }
    if (tile->kind == TileKind::Block) {
      const auto& block = static_cast<const Block&>(*tile);
      if (block.is_cached != (cached.count(&block) != 0))
        return at(where, "its cached flag is wrong");
      if (block.is_cached) ++cached_tiles;
    }
  }
  if (cached_tiles != cached.size()) return "arena: a stream keeps a block that is gone";
  if (cached_bytes > layout_->block_bytes()) return "arena: more is cached than there is";
  if (mapped != mapping_.mapped_bytes()) {
    return "arena: its tiles hold " + std::to_string(mapped) + " bytes, mapped are " +
           std::to_string(mapping_.mapped_bytes());
  }
  if (mapped != mapped_bytes()) return "arena: mapped bytes are counted wrongly";
  if (mapping_.far_bytes() != far_mapped_.load()) return "arena: far bytes are counted wrongly";
  return {};
}

}  // namespace cuvmm
