// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "alloc/arena/layout.hpp"
#include "alloc/arena/sharing_plan.hpp"
#include "alloc/arena/stripes.hpp"
#include "stream/stream_order.hpp"
#include "vmm/mapping.hpp"

namespace cuvmm::arena {

// The chunks of an arena that may change places with live memory in them, and what is live behind
// each granule of addresses. Valid until the next change of the tiles or the mapping.
struct GranuleSurvey {
  struct Place {
    Size offset;
    Tile* first;  // with its first byte
  };
  struct Chunk {
    ChunkRef chunk;
    std::vector<Place> mapped_at;
    bool stays = false;
  };
  struct Granule {
    Place place;
    LiveParts live;
    SharingPlan::Index window = SharingPlan::whole;
  };

  // Indexed as in the plan. Omits granules in which nothing is live: those of large chunks, and in
  // an estimate those of all chunks.
  std::vector<Chunk> chunks;
  std::vector<Granule> granules;
  SharingPlan plan;
  bool some_stay = false;  // chunks that are left out
  Size free_granules = 0;  // of large chunks in which something is live; for an estimate

  struct What {
    Location where;
    const AccessSet& access;
    const StreamOrder& order;
    const StripeRows& rows;
    // Treats large chunks as if they were many small ones, for an estimate.
    bool as_if_small = false;
  };
  static GranuleSurvey of(Layout& layout, const Mapping& mapping, const What& what);
};

// Calls `visit(const Tile&, const Stretch&)` with the part of each tile that lies in the granule.
template <class Visit>
void for_each_tile_in(const Layout& layout, const GranuleSurvey::Place& place, Visit visit) {
  const Stretch all{place.offset, layout.unit()};
  for (const Tile* tile = place.first; tile != nullptr; tile = tile->after) {
    const Stretch where = layout.stretch_of(*tile);
    if (where.offset >= all.end()) return;
    if (where.end() <= all.offset) continue;
    const Size begin = std::max(where.offset, all.offset);
    visit(*tile, Stretch{begin, std::min(where.end(), all.end()) - begin});
  }
}

}  // namespace cuvmm::arena
