// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/granule_survey.hpp"

#include <algorithm>
#include <unordered_map>

#include "alloc/arena/allocation_span.hpp"

namespace cuvmm::arena {
namespace {

// The contents of a chunk, as seen at its addresses.
struct Seen {
  std::vector<GranuleSurvey::Granule> granules;
  bool stays = false;
  bool has_shadows = false;  // so other addresses may have something live in the chunk
};

// Finds the windows of granules that were laid in stripes. Goes through addresses upwards.
class StripeWindows {
 public:
  StripeWindows(const StripeRows& rows, Size unit, SharingPlan& plan)
      : row_(rows.all().begin()), end_(rows.all().end()), unit_(unit), plan_(plan) {}

  SharingPlan::Index window_of(Size granule) {
    while (row_ != end_ && row_->second.end <= granule) ++row_;
    if (row_ == end_ || granule < row_->first) return SharingPlan::whole;
    return windows_of(row_->second.stripes)[(granule - row_->first) / unit_];
  }

 private:
  using OfRow = std::vector<SharingPlan::Index>;  // by granule

  const OfRow& windows_of(const Stripes& stripes) {
    const auto [known, is_new] = known_.try_emplace(stripes);
    if (!is_new) return known->second;
    const std::vector<Stripes::Part> parts = stripes.parts();
    known->second.resize(parts.size());
    for (Size chunk = 0; chunk < stripes.chunks(); ++chunk) {
      std::map<Size, std::size_t> of_chunk;  // by offset
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].chunk == chunk) of_chunk.emplace(parts[i].where.offset, i);
      }
      std::vector<LiveParts> windows;
      for (const auto& [offset, part] : of_chunk) {
        windows.emplace_back().mark(parts[part].where, unit_);
      }
      const std::vector<SharingPlan::Index> numbers = plan_.add_layout(windows);
      auto number = numbers.begin();
      for (const auto& [offset, part] : of_chunk) known->second[part] = *number++;
    }
    return known->second;
  }

  std::map<Size, StripeRows::Row>::const_iterator row_;
  const std::map<Size, StripeRows::Row>::const_iterator end_;
  const Size unit_;
  SharingPlan& plan_;
  std::map<Stripes, OfRow> known_;
};

class Survey {
 public:
  Survey(Layout& layout, const GranuleSurvey::What& what)
      : layout_(layout), what_(what), tile_(layout.first()) {}

  void look_at(const MappedChunk& mapped, Seen& seen) {
    seen.granules.clear();
    seen.has_shadows = false;
    const Size unit = layout_.unit();
    const Stretch where = mapped.where();
    seen.stays = !(mapped.chunk->location() == what_.where) || !(mapped.access == what_.access) ||
                 mapped.chunk.exported() || !is_multiple(where.size, unit);
    for (Size at = where.offset; !seen.stays && at < where.end(); at += unit) {
      tile_ = layout_.tile_at(at, tile_);
      seen.granules.push_back({{at, tile_}, live_in({at, tile_}, seen)});
    }
  }

 private:
  LiveParts live_in(const GranuleSurvey::Place& place, Seen& seen) const {
    LiveParts live;
    for_each_tile_in(layout_, place, [&](const Tile& tile, const Stretch& part) {
      if (tile.kind == TileKind::Block) {
        if (static_cast<const Block&>(tile).pinned()) seen.stays = true;
        live.mark({part.offset - place.offset, part.size}, layout_.unit());
      } else if (tile.kind == TileKind::Free) {
        if (!is_idle(static_cast<const Range&>(tile), what_.order)) seen.stays = true;
      } else if (tile.kind == TileKind::Shadow) {
        seen.has_shadows = true;
      } else {
        seen.stays = true;
      }
    });
    return live;
  }

  Layout& layout_;
  const GranuleSurvey::What& what_;
  Tile* tile_;  // with the first byte of the last granule, since granules follow one another
};

}  // namespace

GranuleSurvey GranuleSurvey::of(Layout& layout, const Mapping& mapping, const What& what) {
  GranuleSurvey all;
  Survey look{layout, what};
  StripeWindows windows{what.rows, layout.unit(), all.plan};
  std::vector<Seen> seen;  // by chunk
  std::unordered_map<CUmemGenericAllocationHandle, std::size_t> known;
  const Size unit = layout.unit();
  Seen here;
  mapping.for_each([&](const MappedChunk& mapped) {
    look.look_at(mapped, here);
    all.some_stay |= here.stays;
    // Full memory has room for nothing and fits nowhere. Most memory is, if there is too little.
    const bool is_small = mapped.chunk->size() == unit;
    const bool stands_alone = !here.stays && !here.has_shadows;
    if (is_small && stands_alone && here.granules.front().live.is_full()) return;
    if (is_small && !here.granules.empty()) {
      here.granules.front().window = windows.window_of(mapped.offset);
    }
    if (what.as_if_small && !is_small) {
      const auto free = static_cast<Size>(
          std::count_if(here.granules.begin(), here.granules.end(),
                        [](const Granule& granule) { return granule.live.is_empty(); }));
      if (!here.stays && free != here.granules.size()) all.free_granules += free;
      for (const Granule& granule : here.granules) {
        if (granule.live.is_full()) continue;
        all.chunks.push_back({mapped.chunk, {granule.place}, here.stays});
        seen.push_back({{granule}, here.stays});
      }
      return;
    }
    const auto [place, is_new] = known.emplace(mapped.chunk->handle(), all.chunks.size());
    Tile* const first = here.granules.empty() ? nullptr : here.granules.front().place.first;
    if (is_new) {
      all.chunks.push_back({mapped.chunk, {{mapped.offset, first}}, here.stays});
      seen.push_back(here);
      return;
    }
    Chunk& chunk = all.chunks[place->second];
    chunk.mapped_at.push_back({mapped.offset, first});
    chunk.stays |= here.stays;
    auto& granules = seen[place->second].granules;
    granules.insert(granules.end(), here.granules.begin(), here.granules.end());
  });

  const auto is_live = [](const Granule& granule) { return !granule.live.is_empty(); };
  std::size_t kept = 0;
  for (std::size_t i = 0; i < all.chunks.size(); ++i) {
    const auto& granules = seen[i].granules;
    if (all.chunks[i].stays || std::none_of(granules.begin(), granules.end(), is_live)) continue;
    // A granule without anything live should have ended its sharing, but the driver refused. For an
    // estimate it will.
    const bool is_shared = all.chunks[i].mapped_at.size() > 1;
    const bool all_live = std::all_of(granules.begin(), granules.end(), is_live);
    if (is_shared && !all_live && !what.as_if_small) continue;
    const bool is_large = all.chunks[i].chunk->size() != unit && !what.as_if_small;
    const SharingPlan::Index chunk =
        all.plan.add_chunk(is_large ? all.chunks[i].chunk->size() / unit : 1);
    for (const Granule& granule : granules) {
      if ((is_large || is_shared) && !is_live(granule)) continue;
      all.plan.add_granule(chunk, granule.live, granule.window);
      all.granules.push_back(granule);
    }
    if (kept != i) all.chunks[kept] = std::move(all.chunks[i]);
    ++kept;
  }
  all.chunks.resize(kept);
  return all;
}

}  // namespace cuvmm::arena
