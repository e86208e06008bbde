// SPDX-License-Identifier: Apache-2.0
// The invariant check of a whole arena.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "alloc/arena/arena_state.hpp"

namespace cuvmm::arena {

// Every byte of a chunk belongs to exactly one of its places.
InvariantViolation ArenaState::sharing_violation() const {
  std::unordered_map<CUmemGenericAllocationHandle, std::vector<Stretch>> parts;
  for (const Tile* tile = layout.first(); tile != nullptr; tile = tile->after) {
    if (tile->kind == TileKind::Hole || tile->kind == TileKind::Shadow) continue;
    const Stretch where = layout.stretch_of(*tile);
    for (const MappedChunk& chunk : mapping.chunks_in(where)) {
      const Size begin = std::max(chunk.offset, where.offset);
      const Size end = std::min(chunk.where().end(), where.end());
      parts[chunk.chunk->handle()].push_back({begin - chunk.offset, end - begin});
    }
  }
  InvariantViolation found;
  mapping.for_each([&](const MappedChunk& one) {
    auto& all = parts[one.chunk->handle()];
    std::sort(all.begin(), all.end(),
              [](const Stretch& a, const Stretch& b) { return a.offset < b.offset; });
    Size reached = 0;
    for (const Stretch& part : all) {
      if (part.offset != reached && !found) {
        found = "arena: bytes of the chunk at offset " + std::to_string(one.offset) +
                " belong to nobody, or to two";
      }
      reached = part.end();
    }
    if (reached != one.chunk->size() && !found) {
      found = "arena: the end of the chunk at offset " + std::to_string(one.offset) +
              " belongs to nobody";
    }
  });
  return found;
}

InvariantViolation ArenaState::violation() const {
  std::unordered_set<const Block*> cached;
  Size kept = 0;
  for (const StreamCache& cache : caches) {
    const Holding holding = cache.lock();
    if (InvariantViolation found = cache.violation()) return found;
    cache.for_each([&](const Block& block) { cached.insert(&block); });
    kept += cache.bytes();
  }

  const Holding holding{lock};
  if (InvariantViolation found = layout.violation()) return found;
  if (InvariantViolation found = mapping.violation()) return found;
  const auto at = [](const Stretch& where, const char* what) {
    return "arena: at offset " + std::to_string(where.offset) + ": " + what;
  };

  // Every tile except the holes has memory, and each chunk lies behind the right tiles.
  Size tiled = 0;
  std::size_t cached_tiles = 0;
  for (const Tile* tile = layout.first(); tile != nullptr; tile = tile->after) {
    const Stretch where = layout.stretch_of(*tile);
    if (tile->kind == TileKind::Hole) {
      if (!mapping.chunks_in(where).empty()) return at(where, "a chunk lies in a hole");
      continue;
    }
    tiled += where.size;
    if (!mapping.covers(where)) return at(where, "memory is missing");
    for (const MappedChunk& chunk : mapping.chunks_in(where)) {
      if (tile->kind != TileKind::Broken && !(chunk.access == access)) {
        return at(where, "a chunk has other rights");
      }
      const Residency chunk_residency = residency(chunk.chunk->location(), settings.device);
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
      if (range.knows_whole && !(range.whole == WholeChunks{mapping}.of(unknown))) {
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
  if (InvariantViolation found = sharing_violation()) return found;
  if (cached_tiles != cached.size()) return "arena: a stream keeps a block that is gone";
  if (kept > layout.block_bytes()) return "arena: more is cached than there is";
  if (tiled != mapping.mapped_bytes()) {
    return "arena: its tiles hold " + std::to_string(tiled) + " bytes, mapped are " +
           std::to_string(mapping.mapped_bytes());
  }
  if (physical_bytes() != mapped.load()) return "arena: mapped bytes are counted wrongly";
  if (mapping.far_bytes() != far_mapped.load()) return "arena: far bytes are counted wrongly";
  return {};
}

}  // namespace cuvmm::arena
