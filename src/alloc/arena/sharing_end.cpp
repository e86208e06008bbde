// SPDX-License-Identifier: Apache-2.0
// The end of sharing where it is of no use, and repairs after a refused undo.
#include <algorithm>
#include <tuple>

#include "alloc/arena/allocation_span.hpp"
#include "alloc/arena/sharing.hpp"
#include "trace/record_event.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm::arena {
namespace {

struct Shared {
  CUmemGenericAllocationHandle chunk;
  GranuleSurvey::Place place;
};

// The granules of addresses that share chunks, those of one chunk one after another.
std::vector<Shared> find_shared(Layout& layout, const Mapping& mapping) {
  std::vector<Shared> all;
  mapping.for_each([&](const MappedChunk& mapped) {
    if (mapped.chunk->size() == layout.unit()) {
      all.push_back({mapped.chunk->handle(), {mapped.offset, nullptr}});
    }
  });
  Tile* tile = layout.first();
  for (Shared& one : all) {
    one.place.first = tile = layout.tile_at(one.place.offset, tile);
  }
  std::sort(all.begin(), all.end(), [](const Shared& a, const Shared& b) {
    return std::tie(a.chunk, a.place.offset) < std::tie(b.chunk, b.place.offset);
  });
  return all;
}

}  // namespace

Sharing::Use Sharing::use_of(const GranuleSurvey::Place& place) const {
  Use use = Use::None;
  for_each_tile_in(at_.layout, place, [&](const Tile& tile, const Stretch&) {
    if (tile.kind == TileKind::Shadow) return;
    if (tile.kind != TileKind::Free) {
      use = Use::Live;
    } else if (use == Use::None && !is_idle(static_cast<const Range&>(tile), at_.order)) {
      use = Use::Pending;
    }
  });
  return use;
}

Sharing::Ended Sharing::end_unused() {
  Ended ended;
  if (at_.layout.shadow_bytes() == 0) return ended;
  ended.some_pending = !at_.torn.empty();
  if (ended.some_pending) return ended;
  std::vector<Torn> without_access;
  const std::vector<Shared> all = find_shared(at_.layout, at_.mapping);
  TileChanges changes{at_.layout};
  for (auto first = all.begin(); first != all.end();) {
    const auto end = std::find_if(first, all.end(),
                                  [&](const Shared& one) { return one.chunk != first->chunk; });
    std::vector<GranuleSurvey::Place> unused;
    const GranuleSurvey::Place* keeper = nullptr;
    const bool is_shared = end - first > 1;
    for (; first != end; ++first) {
      const Use use = is_shared ? use_of(first->place) : Use::Live;
      if (use == Use::Pending) ended.some_pending = true;
      if (use == Use::None) {
        unused.push_back(first->place);
      } else if (keeper == nullptr) {
        keeper = &first->place;
      }
    }
    const bool has_use = keeper != nullptr;
    GranuleSurvey::Place last;
    if (!has_use) {
      last = unused.back();
      unused.pop_back();
      keeper = &last;
    }
    if (unused.empty()) continue;
    const std::size_t gone = give_up(unused, *keeper, changes, without_access);
    if (gone == unused.size() && !has_use) ++ended.chunks;
  }
  changes.join();
  for (Torn& torn : without_access) hide(at_.torn.emplace_back(std::move(torn)));
  return ended;
}

// Returns how many of them the driver has unmapped.
std::size_t Sharing::give_up(const std::vector<GranuleSurvey::Place>& unused,
                             const GranuleSurvey::Place& keeper, TileChanges& changes,
                             std::vector<Torn>& without_access) {
  MapPlan plan;
  const ChunkRef chunk = at_.mapping.find(keeper.offset)->chunk;
  for (const GranuleSurvey::Place& place : unused) plan.unmap(at_.mapping, place.offset);
  (void)plan.commit();  // what stays mapped is seen below
  std::size_t gone = 0;
  for (const GranuleSurvey::Place& place : unused) {
    const MappedChunk* const there = at_.mapping.find(place.offset);
    if (there != nullptr) {
      if (there->access.is_none()) without_access.push_back({place.offset, chunk, {}});
      continue;
    }
    ++gone;
    CUVMM_TRACE(.event = TraceEvent::Unmap, .device = static_cast<std::int16_t>(at_.where.id()),
                .detail = 1, .address = at_.layout.address_of(place.offset),
                .size = at_.layout.unit());
    give_bytes(place, keeper, chunk, changes);
    changes.take_memory(place.first, {place.offset, at_.layout.unit()});
  }
  return gone;
}

// Hands the bytes that belong to one place of the chunk over to the other, where they are free.
void Sharing::give_bytes(const GranuleSurvey::Place& from, const GranuleSurvey::Place& to,
                         const ChunkRef& chunk, TileChanges& changes) {
  const Residency lies = residency(chunk->location(), at_.where.id());
  std::vector<Stretch> own;
  for_each_tile_in(at_.layout, from, [&](const Tile& tile, const Stretch& part) {
    if (tile.kind != TileKind::Shadow) own.push_back(part);
  });
  for (const Stretch& part : own) {
    const Size offset = to.offset + (part.offset - from.offset);
    changes.turn(to.first, {offset, part.size}, TileKind::Shadow, TileKind::Free, lies);
    CUVMM_TRACE(.event = TraceEvent::Map, .device = static_cast<std::int16_t>(at_.where.id()),
                .detail = 1, .address = at_.layout.address_of(offset), .size = part.size,
                .other = chunk->handle());
  }
}

// For a change whose undo the driver refused too: granules that have lost their old chunk continue
// with the new one, which has the contents.
void Sharing::follow_torn(GranuleSurvey& survey) {
  const Size unit = at_.layout.unit();
  std::vector<Torn> torn;
  {
    TileChanges changes{at_.layout};
    const auto has_old = [&](const GranuleSurvey::Place& place, const GranuleSurvey::Chunk& chunk) {
      const MappedChunk* const there = at_.mapping.find(place.offset);
      return there != nullptr && there->chunk == chunk.chunk;
    };
    for_each_leaving(survey, [&](const GranuleSurvey::Place& place, SharingPlan::Index index) {
      const GranuleSurvey::Chunk& chunk = survey.chunks[index];
      if (has_old(place, chunk)) {
        const bool is_usable = at_.mapping.find(place.offset)->access == at_.access;
        if (!is_usable) torn.push_back({place.offset, chunk.chunk, {}});
        return;
      }
      const auto still =
          std::find_if(chunk.mapped_at.begin(), chunk.mapped_at.end(),
                       [&](const GranuleSurvey::Place& other) { return has_old(other, chunk); });
      if (still != chunk.mapped_at.end()) give_bytes(place, *still, chunk.chunk, changes);
      const Stretch all{place.offset, chunk.chunk->size()};
      for (const SharingPlan::Index moved : survey.plan.moved()) {
        const GranuleSurvey::Granule& granule = survey.granules[moved];
        if (!all.contains(granule.place.offset)) continue;
        GranuleSurvey::Chunk& to_chunk = survey.chunks[survey.plan.goal(moved)];
        const ChunkRef to = to_chunk.chunk;
        follow_move(granule, to_chunk, changes);
        const MappedChunk* const there = at_.mapping.find(granule.place.offset);
        const bool is_usable =
            there != nullptr && there->chunk == to && there->access == at_.access;
        if (!is_usable) torn.push_back({granule.place.offset, to, {}});
      }
      const auto is_torn = [&](Size at) {
        return std::any_of(torn.begin(), torn.end(),
                           [at](const Torn& one) { return one.offset == at; });
      };
      for (Size at = all.offset; at < all.end(); at += unit) {
        if (at_.mapping.find(at) != nullptr || is_torn(at)) continue;
        changes.take_memory(place.first, {at, unit});
      }
    });
  }
  for (Torn& one : torn) hide(at_.torn.emplace_back(std::move(one)));
}

void Sharing::hide(Torn& torn) {
  const Stretch all{torn.offset, torn.chunk->size()};
  for (Size at = all.offset; at < all.end(); at += at_.layout.unit()) {
    for_each_tile_in(at_.layout, {at, at_.layout.first()},
                     [&](const Tile& tile, const Stretch& part) {
                       if (tile.kind == TileKind::Free) torn.hidden.push_back(part);
                     });
  }
  TileChanges changes{at_.layout};
  changes.turn(at_.layout.first(), all, TileKind::Free, TileKind::Shadow);
}

void Sharing::hide_torn() {
  for (Torn& torn : at_.torn) hide(torn);
}

void Sharing::restore_torn() {
  std::erase_if(at_.torn, [this](const Torn& torn) {
    const Stretch all{torn.offset, torn.chunk->size()};
    MapPlan plan;
    const MappedChunk* const there = at_.mapping.find(torn.offset);
    if (there != nullptr && there->chunk == torn.chunk) {
      plan.allow(at_.mapping, all, at_.access);
    } else {
      for (const MappedChunk& other : at_.mapping.chunks_in(all)) {
        plan.unmap(at_.mapping, other.offset);
      }
      plan.map(at_.mapping, torn.offset, torn.chunk, at_.access);
    }
    if (!plan.commit().ok()) return false;
    const Residency lies = residency(torn.chunk->location(), at_.where.id());
    TileChanges changes{at_.layout};
    for (const Stretch& part : torn.hidden) {
      changes.turn(at_.layout.first(), part, TileKind::Shadow, TileKind::Free, lies);
    }
    return true;
  });
}

}  // namespace cuvmm::arena
