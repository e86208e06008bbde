// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/sharing.hpp"

#include <algorithm>
#include <unordered_map>

#include "trace/record_event.hpp"
#include "vmm/copy_bytes.hpp"
#include "vmm/map_plan.hpp"
#include "vmm/scratch_mapping.hpp"

namespace cuvmm::arena {
namespace {

// Few enough that the lock is not held for long.
constexpr std::size_t moves_a_batch = 16'384;

// Calls `visit(Stretch)` for the parts of blocks in the granule; they count from its first byte.
template <class Visit>
void for_each_live_part(const Layout& layout, const GranuleSurvey::Place& place, Visit visit) {
  for_each_tile_in(layout, place, [&](const Tile& tile, const Stretch& part) {
    if (tile.kind == TileKind::Block) visit(Stretch{part.offset - place.offset, part.size});
  });
}

}  // namespace

Sharing::Estimate Sharing::could_gain(Size granules) const {
  GranuleSurvey survey = GranuleSurvey::of(at_.layout, at_.mapping,
                                           {.where = at_.where,
                                            .access = at_.access,
                                            .order = at_.order,
                                            .rows = at_.rows,
                                            .as_if_small = true});
  Size gained = survey.free_granules;
  if (gained >= granules) return {gained, survey.some_stay};
  // Proceeds like Arena::share(): each round of moves leaves new room, and consolidating takes
  // longest, so it comes last.
  for (Consolidations consolidations;;) {
    const Size more = survey.plan.empty({.gain = granules - gained});
    gained += more;
    consolidations.note_gain(more);
    if (gained >= granules) return {gained, survey.some_stay};
    survey.plan.settle();
    if (more != 0) continue;
    if (!consolidations.is_worthwhile(granules - gained)) return {gained, survey.some_stay};
    if (survey.plan.consolidate() == 0) return {gained, survey.some_stay};
    survey.plan.settle();
  }
}

Result<Sharing::Gained> Sharing::gain(Size granules, Aim aim, const std::vector<ChunkRef>& spares,
                                      const CopyBy& copy) {
  GranuleSurvey survey = GranuleSurvey::of(
      at_.layout, at_.mapping,
      {.where = at_.where, .access = at_.access, .order = at_.order, .rows = at_.rows});
  for (const ChunkRef& spare : spares) {
    survey.plan.add_spare();
    survey.chunks.push_back({spare, {}, false});
  }
  Gained gained;
  if (aim == Aim::Gain) {
    gained.granules = survey.plan.empty({.gain = granules, .moves = moves_a_batch});
    gained.lacks_spares = survey.plan.lacks_spares();
    if (gained.granules == 0) return gained;
  } else if (survey.plan.consolidate(moves_a_batch) == 0) {
    return gained;
  }
  TRY(copy_all(survey, copy));
  TRY(map_all(survey));
  for (const SharingPlan::Index granule : survey.plan.moved()) {
    for_each_live_part(at_.layout, survey.granules[granule].place,
                       [&](const Stretch& piece) { gained.bytes_moved += piece.size; });
  }
  gained.moves = survey.plan.moved().size();
  follow(survey);
  return gained;
}

// The vacant bytes of a chunk can be written at any of the addresses where it is mapped.
Result<void> Sharing::copy_all(const GranuleSurvey& survey, const CopyBy& by) {
  const Driver& driver = at_.mapping.driver();
  std::vector<ChunkRef> fresh;
  std::unordered_map<SharingPlan::Index, Size> place_of;
  for (const SharingPlan::Index moved : survey.plan.moved()) {
    const SharingPlan::Index goal = survey.plan.goal(moved);
    const GranuleSurvey::Chunk& to = survey.chunks[goal];
    const Size next = fresh.size() * at_.layout.unit();
    if (to.mapped_at.empty() && place_of.emplace(goal, next).second) fresh.push_back(to.chunk);
  }
  std::shared_ptr<ScratchMapping> scratch;
  if (!fresh.empty()) {
    scratch = TRY(ScratchMapping::of(driver, at_.mapping.granule(), fresh, by.device));
  }
  CopyBytes copies{driver, by.stream->handle()};
  const auto copy = [&]() -> Result<void> {
    for (const SharingPlan::Index moved : survey.plan.moved()) {
      const GranuleSurvey::Granule& granule = survey.granules[moved];
      const CUdeviceptr from = at_.layout.address_of(granule.place.offset);
      const SharingPlan::Index goal = survey.plan.goal(moved);
      const auto& mapped_at = survey.chunks[goal].mapped_at;
      const CUdeviceptr to = mapped_at.empty() ? scratch->addresses.address() + place_of.at(goal)
                                               : at_.layout.address_of(mapped_at.front().offset);
      Result<void> outcome;
      for_each_live_part(at_.layout, granule.place, [&](const Stretch& piece) {
        if (!outcome.ok()) return;
        outcome =
            copies.add(to + piece.offset, from + piece.offset, piece.size, at_.where, at_.where);
      });
      TRY(outcome);
    }
    return copies.finish();
  };
  const Result<void> copied = copy();
  if (copied.ok() || copies.is_over()) return copied;
  // Some may still write, so their targets are not used again.
  by.stream->keep_until_idle(scratch);
  keep_targets(survey);
  return copied;
}

void Sharing::keep_targets(const GranuleSurvey& survey) {
  for (const SharingPlan::Index moved : survey.plan.moved()) {
    for (const GranuleSurvey::Place& place : survey.chunks[survey.plan.goal(moved)].mapped_at) {
      std::vector<Stretch> free;
      const GranuleSurvey::Place from_start{place.offset, at_.layout.first()};
      for_each_tile_in(at_.layout, from_start, [&](const Tile& tile, const Stretch& part) {
        if (tile.kind == TileKind::Free) free.push_back(part);
      });
      for (const Stretch& part : free) at_.layout.carve_at(part);
    }
  }
}

Result<void> Sharing::map_all(GranuleSurvey& survey) {
  MapPlan plan;
  for_each_leaving(survey, [&](const GranuleSurvey::Place& place, SharingPlan::Index) {
    plan.unmap(at_.mapping, place.offset);
  });
  for (const SharingPlan::Index moved : survey.plan.moved()) {
    plan.map(at_.mapping, survey.granules[moved].place.offset,
             survey.chunks[survey.plan.goal(moved)].chunk, at_.access);
  }
  const Result<void> done = plan.commit();
  if (!done.ok()) follow_torn(survey);
  return done;
}

void Sharing::follow(GranuleSurvey& survey) {
  TileChanges changes{at_.layout};
  for (const SharingPlan::Index moved : survey.plan.moved()) {
    const GranuleSurvey::Granule& granule = survey.granules[moved];
    const SharingPlan::Index home = survey.plan.home(moved);
    if (!survey.plan.is_emptied(home)) leave_to_others(granule, survey.chunks[home], changes);
    follow_move(granule, survey.chunks[survey.plan.goal(moved)], changes);
  }
  for (const SharingPlan::Index index : survey.plan.emptied()) {
    const Size unit = at_.layout.unit();
    const GranuleSurvey::Chunk& chunk = survey.chunks[index];
    for (const GranuleSurvey::Place& place : chunk.mapped_at) {
      for (Size at = place.offset; at < place.offset + chunk.chunk->size(); at += unit) {
        if (at_.mapping.find(at) != nullptr) continue;
        changes.take_memory(place.first, {at, unit});
      }
    }
  }
}

// Gives the granule's bytes of its old chunk to another granule that still shares that chunk.
void Sharing::leave_to_others(const GranuleSurvey::Granule& granule, GranuleSurvey::Chunk& from,
                              TileChanges& changes) {
  const GranuleSurvey::Place& place = granule.place;
  std::erase_if(from.mapped_at,
                [&](const GranuleSurvey::Place& other) { return other.offset == place.offset; });
  give_bytes(place, from.mapped_at.front(), from.chunk, changes);
}

void Sharing::follow_move(const GranuleSurvey::Granule& granule, GranuleSurvey::Chunk& to,
                          TileChanges& changes) {
  const Size unit = at_.layout.unit();
  const GranuleSurvey::Place& place = granule.place;
  for_each_live_part(at_.layout, granule.place, [&](const Stretch& piece) {
    for (const GranuleSurvey::Place& other : to.mapped_at) {
      changes.turn(other.first, {other.offset + piece.offset, piece.size}, TileKind::Free,
                   TileKind::Shadow);
    }
    CUVMM_TRACE(.event = TraceEvent::Compact, .device = static_cast<std::int16_t>(at_.where.id()),
                .address = at_.layout.address_of(place.offset) + piece.offset, .size = piece.size,
                .other = to.chunk->handle());
  });
  // The first granule to use a spare chunk owns all its free bytes.
  const bool is_first = to.mapped_at.empty();
  changes.turn(place.first, {place.offset, unit}, is_first ? TileKind::Shadow : TileKind::Free,
               is_first ? TileKind::Free : TileKind::Shadow);
  to.mapped_at.push_back(place);
}

}  // namespace cuvmm::arena
