// SPDX-License-Identifier: Apache-2.0
// The end of sharing where it is of no use, and repairs after a refused undo.
#include <algorithm>
#include <tuple>

#include "alloc/arena/allocation_span.hpp"
#include "alloc/arena/sharing.hpp"
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
    while (layout.stretch_of(*tile).end() <= one.place.offset) tile = tile->after;
    one.place.first = tile;
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
  if (at_.layout.shadow_bytes() == 0 || !at_.torn.empty()) return ended;
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
    if (!unused.empty() && give_up(unused, *keeper, changes) && !has_use) ++ended.chunks;
  }
  return ended;
}

// Returns whether the driver has unmapped them all.
bool Sharing::give_up(const std::vector<GranuleSurvey::Place>& unused,
                      const GranuleSurvey::Place& keeper, TileChanges& changes) {
  MapPlan plan;
  const MappedChunk& mapped = *at_.mapping.find(keeper.offset);
  const Residency lies = residency(mapped.chunk->location(), at_.where.id());
  for (const GranuleSurvey::Place& place : unused) plan.unmap(at_.mapping, place.offset);
  if (!plan.commit().ok()) {
    note_torn_at(unused, mapped.chunk);
    return false;
  }
  for (const GranuleSurvey::Place& place : unused) {
    std::vector<Stretch> free;
    for_each_tile_in(at_.layout, place, [&](const Tile& tile, const Stretch& part) {
      if (tile.kind == TileKind::Free) free.push_back(part);
    });
    for (const Stretch& part : free) {
      changes.turn(keeper.first, {keeper.offset + (part.offset - place.offset), part.size},
                   TileKind::Shadow, TileKind::Free, lies);
    }
    const Stretch all{place.offset, at_.layout.unit()};
    changes.turn(place.first, all, TileKind::Free, TileKind::Hole);
    changes.turn(place.first, all, TileKind::Shadow, TileKind::Hole);
  }
  return true;
}

void Sharing::note_torn(const GranuleSurvey& survey) {
  for (const SharingPlan::Index index : survey.plan.emptied()) {
    note_torn_at(survey.chunks[index].mapped_at, survey.chunks[index].chunk);
  }
}

void Sharing::note_torn_at(const std::vector<GranuleSurvey::Place>& places, const ChunkRef& chunk) {
  for (const GranuleSurvey::Place& place : places) {
    const MappedChunk* const there = at_.mapping.find(place.offset);
    const bool is_as_before = there != nullptr && there->offset == place.offset &&
                              there->chunk == chunk && there->access == at_.access;
    if (is_as_before) continue;
    hide(at_.torn.emplace_back(Torn{place.offset, chunk, {}}));
  }
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

void Sharing::mend() {
  std::erase_if(at_.torn, [this](const Torn& torn) {
    const Stretch all{torn.offset, torn.chunk->size()};
    MapPlan plan;
    for (const MappedChunk& there : at_.mapping.chunks_in(all)) {
      plan.unmap(at_.mapping, there.offset);
    }
    plan.map(at_.mapping, torn.offset, torn.chunk, at_.access);
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
