// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/arena_eviction.hpp"

#include <algorithm>
#include <unordered_map>

namespace cuvmm {

using arena::ArenaState;
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

void ArenaEviction::list_held(std::vector<HeldChunk>& held) const {
  const Holding holding{state_.lock};
  const Tile* tile = state_.layout.first();
  state_.mapping.for_each([&](const MappedChunk& mapped) {
    const Stretch where = mapped.where();
    while (tile != nullptr && state_.layout.stretch_of(*tile).end() <= where.offset)
      tile = tile->after;
    Stretch blocks;
    std::uint64_t holder = 0;
    bool stays = why_it_stays(mapped, {}, state_.settings.device) != nullptr;
    for (const Tile* at = tile; at != nullptr && state_.layout.stretch_of(*at).offset < where.end();
         at = at->after) {
      if (at->kind != TileKind::Block) continue;
      const Stretch block = state_.layout.stretch_of(*at);
      if (blocks.size == 0) {
        blocks.offset = block.offset;
        holder = static_cast<const Block*>(at)->holder();
      }
      blocks.size = block.end() - blocks.offset;
      stays |= reason_to_stay(static_cast<const Block*>(at)->pins()) != nullptr;
    }
    if (blocks.size == 0) return;
    held.push_back({state_.mapping.address_of(mapped.offset), where.size, mapped.chunk->location(),
                    mapped.chunk->handle(), state_.mapping.address_of(blocks.offset), blocks.size,
                    holder, stays});
  });
}

void ArenaEviction::begin_eviction(EvictionSet& evicted) {
  state_.flush_all();
  const Holding holding{state_.lock};
  state_.retry_refused();
  state_.look_at_pending(ArenaState::Taker::Others);
  state_.end_unused_sharing();
  state_.release_chunks([&](const Chunk& chunk, Size) {
    return evicted.wants(chunk) ? ArenaState::Choice::Released : ArenaState::Choice::Keep;
  });
  state_.is_away = true;
  evicted.owners.push_back(this);
  std::vector<Pinned> pinned;
  for (const Tile* tile = state_.layout.first(); tile != nullptr; tile = tile->after) {
    if (tile->kind != TileKind::Block) continue;
    const char* const why = reason_to_stay(static_cast<const Block*>(tile)->pins());
    if (why != nullptr) pinned.push_back({state_.layout.stretch_of(*tile), why});
  }
  // A shared chunk leaves from all of its addresses, or from none.
  also_at_.clear();
  std::unordered_map<CUmemGenericAllocationHandle, Size> first_at;
  std::unordered_map<CUmemGenericAllocationHandle, const char*> stays;
  state_.mapping.for_each([&](const MappedChunk& mapped) {
    const char* const why = why_it_stays(mapped, pinned, state_.settings.device);
    if (why != nullptr) stays.emplace(mapped.chunk->handle(), why);
    const auto [first, is_first] = first_at.emplace(mapped.chunk->handle(), mapped.offset);
    if (!is_first) also_at_[first->second].push_back(mapped.offset);
  });
  state_.mapping.for_each([&](const MappedChunk& mapped) {
    const Chunk& chunk = *mapped.chunk;
    if (!evicted.wants(chunk) || first_at.at(chunk.handle()) != mapped.offset) return;
    if (const auto why = stays.find(chunk.handle()); why != stays.end()) {
      return evicted.exclude(chunk.size(), chunk.location(), why->second);
    }
    evicted.chunks.push_back({.of = this,
                              .address = state_.mapping.address_of(mapped.offset),
                              .size = chunk.size(),
                              .home = chunk.location(),
                              .exportable = chunk.exportable() ? Export::Yes : Export::No,
                              .chunk = mapped.chunk,
                              .index = mapped.offset,
                              .access = mapped.access});
  });
}

Result<void> ArenaEviction::take_out(EvictedChunk& one) {
  const Holding holding{state_.lock};
  MapPlan plan;
  for (const Size offset : offsets_of(one)) {
    if (state_.mapping.find(offset) != nullptr) plan.unmap(state_.mapping, offset);
  }
  TRY(plan.commit());
  one.chunk = {};
  return {};
}

Result<void> ArenaEviction::put_back(std::span<EvictedChunk> some) {
  const Holding holding{state_.lock};
  MapPlan plan;
  for (const EvictedChunk& one : some) {
    for (const Size offset : offsets_of(one)) {
      const MappedChunk* const there = state_.mapping.find(offset);
      if (there == nullptr) {
        plan.map(state_.mapping, offset, one.chunk, one.access);
      } else if (!(there->chunk == one.chunk)) {
        plan.unmap(state_.mapping, offset);
        plan.map(state_.mapping, offset, one.chunk, one.access);
      } else if (!(there->access == one.access)) {
        plan.allow(state_.mapping, there->where(), one.access);
      }
    }
  }
  return plan.commit();
}

// Where the chunk is mapped, or was.
std::vector<Size> ArenaEviction::offsets_of(const EvictedChunk& one) const {
  std::vector<Size> offsets{one.index};
  const auto also = also_at_.find(one.index);
  if (also != also_at_.end())
    offsets.insert(offsets.end(), also->second.begin(), also->second.end());
  return offsets;
}

void ArenaEviction::end_eviction() {
  const Holding holding{state_.lock};
  state_.is_away = false;
  also_at_.clear();
  follow_chunks();
  state_.note_mapped();
}

// Updates the residency of all tiles from the mapping.
void ArenaEviction::follow_chunks() {
  std::vector<Range*> free;
  state_.layout.for_each([&](Tile& tile) {
    if (tile.kind == TileKind::Free) free.push_back(static_cast<Range*>(&tile));
    if (tile.kind != TileKind::Block) return;
    static_cast<Block&>(tile).residency = state_.far_within(state_.layout.stretch_of(tile)).empty()
                                              ? Residency::Near
                                              : Residency::Far;
  });
  for (Range* range : free) state_.layout.mark(*range, state_.far_within(range->where));
  state_.layout.join_all();
}

}  // namespace cuvmm
