// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/allocation_span.hpp"

#include <algorithm>

namespace cuvmm::arena {

bool may_use(const Range& range, StreamId stream, const StreamOrder& order, Use use) {
  const FreeTicket& since = range.freeing.ticket;
  if (since.is_for_anyone() || since.stream == stream) return true;
  if (stream != no_stream && order.is_before(since, stream)) return true;
  if (order.is_free_for_anyone(since)) return true;
  return use == Use::AfterFollowing && !range.freeing.is_merged && order.can_follow(since, stream);
}

std::optional<AllocationSpan> AllocationSpanSearch::find() {
  std::size_t holes = wanted_.effort == Effort::Usual ? usual_holes : layout_.holes().count();
  Range* const tail = layout_.tail();
  for (Range* hole = layout_.holes().oldest(); hole != nullptr && holes != 0; hole = hole->newer) {
    --holes;
    if (hole != tail) consider_run_of(*hole);
  }
  if (tail != nullptr) consider_run_of(*tail);
  if (best_.missing == unlimited) return std::nullopt;
  return AllocationSpan{best_.where, best_.missing, first_, std::move(gaps_)};
}

bool AllocationSpanSearch::is_part(const Tile* tile) const {
  if (tile == nullptr) return false;
  if (tile->kind == TileKind::Hole) return true;
  if (tile->kind != TileKind::Free) return false;
  const auto& range = static_cast<const Range&>(*tile);
  return is_within(wanted_.reach, range) && may_use(range, wanted_.stream, order_, wanted_.use);
}

// Returns false if another hole of the run covers it. Each range is asked about only once: the
// answers change while other threads submit work, begin captures or set attributes of the pool.
bool AllocationSpanSearch::collect_run(Range& hole) {
  const bool all = wanted_.effort == Effort::All;
  run_.clear();
  run_.push_back({&hole});
  std::size_t walk = all ? endless : usual_walk;
  for (Tile* tile = hole.before; walk != 0 && is_part(tile); tile = tile->before, --walk) {
    if (all && tile->kind == TileKind::Hole) return false;
    run_.push_back({static_cast<Range*>(tile)});
  }
  std::reverse(run_.begin(), run_.end());
  walk = all ? endless : usual_walk;
  for (Tile* tile = hole.after; walk != 0 && is_part(tile); tile = tile->after, --walk) {
    run_.push_back({static_cast<Range*>(tile)});
  }
  add_up_run();
  return true;
}

void AllocationSpanSearch::add_up_run() {
  Size holes = 0;
  Size whole = 0;
  for (Part& part : run_) {
    part.holes_before = holes;
    part.whole_before = whole;
    if (part.range->kind == TileKind::Hole) {
      holes += part.range->size();
    } else if (wanted_.spare != unlimited && is_idle(*part.range, order_)) {
      part.whole = whole_.of(*part.range);
      whole += part.whole.size;
    }
  }
}

void AllocationSpanSearch::consider_run_of(Range& hole) {
  if (!collect_run(hole) || run_end() - run_begin() < wanted_.size) return;
  // The least memory is missing if the span begins or ends at an end of a free range. A run of one
  // hole has none.
  if (run_.size() == 1) consider(run_begin());
  const Size last = run_end() - wanted_.size;
  for (const Part& part : run_) {
    const Range& range = *part.range;
    if (range.kind != TileKind::Free) continue;
    consider(std::min(range.begin(), last));
    const Size end = range.end();
    consider(end - run_begin() >= wanted_.size ? end - wanted_.size : run_begin());
  }
}

void AllocationSpanSearch::consider(Size begin) {
  Rated rated{{begin, wanted_.size}};
  const Size end = rated.where.end();
  rated.missing = holes_up_to(end, Edge::End) - holes_up_to(begin, Edge::Begin);
  rated.is_enough = wanted_.spare == unlimited;
  if (!rated.is_enough) {
    const Size staying = whole_up_to(end, Edge::End) - whole_up_to(begin, Edge::Begin);
    rated.is_enough = staying <= wanted_.spare && rated.missing <= wanted_.spare - staying;
  }
  if (!rated.is_better_than(best_)) return;
  best_ = rated;
  first_ = part_at(begin).range;
  gaps_ = gaps_of(rated.where);
}

const AllocationSpanSearch::Part& AllocationSpanSearch::part_at(Size offset) const {
  const auto above =
      std::upper_bound(run_.begin(), run_.end(), offset,
                       [](Size wanted, const Part& part) { return wanted < part.range->begin(); });
  return *std::prev(above);
}

// Memory comes in units: an edge within a hole takes the whole unit.
Size AllocationSpanSearch::holes_up_to(Size offset, Edge edge) const {
  const Part& part = part_at(offset);
  if (part.range->kind != TileKind::Hole) return part.holes_before;
  const Size unit = layout_.unit();
  const Size whole = edge == Edge::Begin ? round_down(offset, unit) : round_up(offset, unit);
  return part.holes_before + (whole - part.range->begin());
}

// An edge within a chunk takes the whole chunk.
Size AllocationSpanSearch::whole_up_to(Size offset, Edge edge) const {
  const Part& part = part_at(offset);
  const Stretch& whole = part.whole;
  if (whole.size == 0 || offset <= whole.offset) return part.whole_before;
  if (offset >= whole.end()) return part.whole_before + whole.size;
  const Stretch cut = whole_.at(edge == Edge::Begin ? offset : offset - 1).where();
  const Size reached = edge == Edge::Begin ? cut.offset : cut.end();
  return part.whole_before + (reached - whole.offset);
}

std::vector<Gap> AllocationSpanSearch::gaps_of(const Stretch& where) const {
  std::vector<Gap> gaps;
  const Size unit = layout_.unit();
  for (const Part* part = &part_at(where.offset); part <= &run_.back(); ++part) {
    Range& range = *part->range;
    if (range.begin() >= where.end()) break;
    if (range.kind != TileKind::Hole) continue;
    const Size begin = std::max(range.begin(), round_down(where.offset, unit));
    const Size end = std::min(range.end(), round_up(where.end(), unit));
    gaps.push_back({&range, {begin, end - begin}});
  }
  return gaps;
}

}  // namespace cuvmm::arena
