// SPDX-License-Identifier: Apache-2.0
// Evicting live memory of an arena and restoring it at the same addresses. Tiles stay as they are.
#include <algorithm>
#include <unordered_map>

#include "alloc/arena/arena.hpp"
#include "alloc/eviction_set.hpp"

namespace cuvmm {

using arena::Range;
using arena::Tile;
using arena::TileKind;

namespace {

struct Pinned {
  Stretch where;
  const char* why;
};

const char* why_it_stays(const MappedChunk& mapped, const std::vector<Pinned>& pinned, int device) {
  if (mapped.chunk.exported()) return "another process holds it";
  if (mapped.access.of_device(device) == Access::None)
    return "the driver refuses to let it be read";
  for (const Pinned& block : pinned) {
    if (block.where.overlaps(mapped.where())) return block.why;
  }
  return nullptr;
}

}  // namespace

void Arena::list_held(std::vector<HeldChunk>& held) const {
  const Holding holding{lock_};
  const Tile* tile = layout_->first();
  mapping_.for_each([&](const MappedChunk& mapped) {
    const Stretch where = mapped.where();
    while (tile != nullptr && layout_->stretch_of(*tile).end() <= where.offset) tile = tile->after;
    Stretch blocks;
    std::uint64_t holder = 0;
    for (const Tile* at = tile; at != nullptr && layout_->stretch_of(*at).offset < where.end();
         at = at->after) {
      if (at->kind != TileKind::Block) continue;
      const Stretch block = layout_->stretch_of(*at);
      if (blocks.size == 0) {
        blocks.offset = block.offset;
        holder = static_cast<const Block*>(at)->holder();
      }
      blocks.size = block.end() - blocks.offset;
    }
    if (blocks.size == 0) return;
    held.push_back({mapping_.address_of(mapped.offset), where.size, mapped.chunk->location(),
                    mapped.chunk->handle(), mapping_.address_of(blocks.offset), blocks.size,
                    holder});
  });
}

void Arena::begin_eviction(EvictionSet& evicted) {
  flush_all();
  const Holding holding{lock_};
  mend();
  look_at_pending(Taker::Others);
  end_unused_sharing();
  release_wanted(evicted.wants);
  is_away_ = true;
  evicted.owners.push_back(this);
  std::vector<Pinned> pinned;
  for (const Tile* tile = layout_->first(); tile != nullptr; tile = tile->after) {
    if (tile->kind != TileKind::Block) continue;
    const char* const why = reason_to_stay(static_cast<const Block*>(tile)->pins());
    if (why != nullptr) pinned.push_back({layout_->stretch_of(*tile), why});
  }
  // A shared chunk leaves from all of its addresses, or from none.
  also_at_.clear();
  std::unordered_map<CUmemGenericAllocationHandle, Size> first_at;
  std::unordered_map<CUmemGenericAllocationHandle, const char*> stays;
  mapping_.for_each([&](const MappedChunk& mapped) {
    const char* const why = why_it_stays(mapped, pinned, settings_.device);
    if (why != nullptr) stays.emplace(mapped.chunk->handle(), why);
    const auto [first, is_first] = first_at.emplace(mapped.chunk->handle(), mapped.offset);
    if (!is_first) also_at_[first->second].push_back(mapped.offset);
  });
  mapping_.for_each([&](const MappedChunk& mapped) {
    const Chunk& chunk = *mapped.chunk;
    if (!evicted.wants(chunk) || first_at.at(chunk.handle()) != mapped.offset) return;
    if (const auto why = stays.find(chunk.handle()); why != stays.end()) {
      return evicted.exclude(chunk.size(), why->second);
    }
    evicted.chunks.push_back({.of = this,
                              .address = mapping_.address_of(mapped.offset),
                              .size = chunk.size(),
                              .home = chunk.location(),
                              .exportable = chunk.exportable() ? Export::Yes : Export::No,
                              .chunk = mapped.chunk,
                              .index = mapped.offset,
                              .access = mapped.access});
  });
}

Result<void> Arena::take_out(EvictedChunk& one) {
  const Holding holding{lock_};
  MapPlan plan;
  for (const Size offset : offsets_of(one)) {
    if (mapping_.find(offset) != nullptr) plan.unmap(mapping_, offset);
  }
  TRY(plan.commit());
  one.chunk = {};
  return {};
}

Result<void> Arena::put_back(std::span<EvictedChunk> some) {
  const Holding holding{lock_};
  MapPlan plan;
  for (const EvictedChunk& one : some) {
    for (const Size offset : offsets_of(one)) {
      const MappedChunk* const there = mapping_.find(offset);
      if (there == nullptr) {
        plan.map(mapping_, offset, one.chunk, one.access);
      } else if (!(there->chunk == one.chunk)) {
        plan.unmap(mapping_, offset);
        plan.map(mapping_, offset, one.chunk, one.access);
      } else if (!(there->access == one.access)) {
        plan.allow(mapping_, there->where(), one.access);
      }
    }
  }
  return plan.commit();
}

// Where the chunk is mapped, or was.
std::vector<Size> Arena::offsets_of(const EvictedChunk& one) const {
  std::vector<Size> offsets{one.index};
  const auto also = also_at_.find(one.index);
  if (also != also_at_.end())
    offsets.insert(offsets.end(), also->second.begin(), also->second.end());
  return offsets;
}

void Arena::end_eviction() {
  const Holding holding{lock_};
  is_away_ = false;
  also_at_.clear();
  follow_chunks();
  note_mapped();
}

// Updates the residency of all tiles from the mapping.
void Arena::follow_chunks() {
  std::vector<Range*> free;
  layout_->for_each([&](Tile& tile) {
    if (tile.kind == TileKind::Free) free.push_back(static_cast<Range*>(&tile));
    if (tile.kind != TileKind::Block) return;
    static_cast<Block&>(tile).residency =
        far_within(layout_->stretch_of(tile)).empty() ? Residency::Near : Residency::Far;
  });
  for (Range* range : free) layout_->mark(*range, far_within(range->where));
  layout_->join_all();
}

}  // namespace cuvmm
