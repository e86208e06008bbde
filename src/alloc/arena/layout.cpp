// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/layout.hpp"

#include <algorithm>

namespace cuvmm::arena {
namespace {

// What decides whether free memory becomes one range.
struct Freed {
  Freeing freeing;
  Residency residency;
  Size size;
};

Freed freed(const Range& range) {
  return {range.freeing, range.residency, range.size()};
}

// The joined range has the later ticket, so joining must not make usable memory wait:
// - A stream may use everything that it freed itself, so its own frees join.
// - Memory that one stream allocates and another frees stays separate until the work is done. Each
//   free would otherwise delay the reuse of all earlier ones.
// - A large range that anyone may use does not join a smaller one that is pending.
bool may_join(const Freed& a, const Freed& b) {
  const FreeTicket& ticket = a.freeing.ticket;
  const FreeTicket& other = b.freeing.ticket;
  if (a.residency != b.residency) return false;
  if (ticket == other) return true;
  if (a.freeing.is_handed_over || b.freeing.is_handed_over) return false;
  if (ticket.is_for_anyone()) return a.size <= b.size;
  if (other.is_for_anyone()) return b.size <= a.size;
  return ticket.stream == other.stream;
}

Freeing joined(const Freeing& a, const Freeing& b) {
  if (a.ticket.is_for_anyone()) return b;
  if (b.ticket.is_for_anyone()) return a;
  const bool is_same = a.ticket.tick == b.ticket.tick;
  return {.ticket = a.ticket.tick >= b.ticket.tick ? a.ticket : b.ticket,
          .is_merged = a.is_merged || b.is_merged || !is_same,
          .is_handed_over = a.is_handed_over || b.is_handed_over};
}

Freeing freeing_of(const Block& block, const FreeTicket& ticket) {
  return {.ticket = ticket,
          .is_handed_over = !ticket.is_for_anyone() && ticket.stream != block.stream};
}

}  // namespace

Layout::Layout(CUdeviceptr base, Size size, Size unit)
    : base_(base), size_(size), unit_(unit), free_(unit) {
  be_one_hole();
}

void Layout::be_one_hole() {
  Range& all = ranges_.make();
  all.kind = TileKind::Hole;
  all.freeing = {};
  all.residency = Residency::Near;
  all.where = {0, size_};
  all.before = all.after = nullptr;
  first_ = last_ = &all;
  holes_.push(all);
}

void Layout::clear() {
  for (Tile* tile = first_; tile != nullptr;) {
    Tile* const next = tile->after;
    if (tile->kind == TileKind::Block) {
      unlink(*tile);
      auto& block = static_cast<Block&>(*tile);
      block.unplace();
      blocks_.give_back(block);
    } else {
      drop(static_cast<Range&>(*tile));
    }
    tile = next;
  }
  block_bytes_ = 0;
  block_count_ = 0;
  shadow_bytes_ = 0;
  be_one_hole();
}

Stretch Layout::stretch_of(const Tile& tile) const {
  if (tile.kind != TileKind::Block) return static_cast<const Range&>(tile).where;
  const auto& block = static_cast<const Block&>(tile);
  return {block.address() - base_, block.granted()};
}

Range* Layout::tail() const {
  return as_range(last_, TileKind::Hole);
}

Block& Layout::make_block(const Stretch& where, StreamId stream, Residency residency) {
  Block& block = blocks_.make();
  block.place(base_ + where.offset, where.size);
  block.stream = stream;
  block.is_behind_others = false;
  block.residency = residency;
  block_bytes_ += where.size;
  ++block_count_;
  return block;
}

Block& Layout::carve(Range& range, Size size, StreamId stream) {
  Block& block = make_block({range.begin(), size}, stream, range.residency);
  if (range.size() == size) {
    free_.remove(range);
    replace(range, block);
    ranges_.give_back(range);
  } else {
    insert_before(range, block);
    free_.resize(range, {range.begin() + size, range.size() - size});
  }
  return block;
}

Block& Layout::carve(Range& first, const Stretch& where, StreamId stream) {
  Range* range = &first;
  while (range->begin() > where.offset) range = static_cast<Range*>(range->before);
  while (range->end() <= where.offset) range = static_cast<Range*>(range->after);
  if (range->begin() < where.offset) {
    range = &cut(*range, {where.offset, range->end() - where.offset});
  }
  Residency residency = range->residency;
  while (range->end() < where.end()) {
    Range& next = static_cast<Range&>(*range->after);
    drop(*range);
    range = &next;
    if (range->residency == Residency::Far) residency = Residency::Far;
  }
  Block& block = make_block(where, stream, residency);
  if (range->end() == where.end()) {
    free_.remove(*range);
    replace(*range, block);
    ranges_.give_back(*range);
  } else {
    insert_before(*range, block);
    free_.resize(*range, {where.end(), range->end() - where.end()});
  }
  return block;
}

Block& Layout::carve_at(const Stretch& where) {
  return carve(static_cast<Range&>(*tile_at(where.offset, first_)), where, no_stream);
}

void Layout::give_back(Block& block, const FreeTicket& ticket) {
  Stretch where = stretch_of(block);
  Freeing freeing = freeing_of(block, ticket);
  const auto joinable_neighbour = [&](Tile* tile) {
    Range* const range = as_range(tile, TileKind::Free);
    if (range == nullptr) return range;
    return may_join(freed(*range), {freeing, Residency::Near, where.size}) ? range : nullptr;
  };
  block_bytes_ -= where.size;
  --block_count_;

  Range* whole = joinable_neighbour(block.before);
  if (whole != nullptr) {
    freeing = joined(freeing, whole->freeing);
    where = {whole->begin(), whole->size() + where.size};
    free_.remove(*whole);
  }
  if (Range* const next = joinable_neighbour(block.after)) {
    freeing = joined(freeing, next->freeing);
    where.size += next->size();
    free_.remove(*next);
    if (whole == nullptr) {
      whole = next;
    } else {
      unlink(*next);
      ranges_.give_back(*next);
    }
  }
  if (whole == nullptr) {
    whole = &ranges_.make();
    whole->kind = TileKind::Free;
    whole->residency = Residency::Near;
    replace(block, *whole);
  } else {
    unlink(block);
  }
  whole->where = where;
  whole->freeing = freeing;
  whole->knows_whole = false;
  free_.add_as_newest(*whole);
  block.unplace();
  blocks_.give_back(block);
}

void Layout::give_back(Block& block, const FreeTicket& ticket, const std::vector<Stretch>& far) {
  if (far.empty()) return give_back(block, ticket);
  const Stretch where = stretch_of(block);
  block_bytes_ -= where.size;
  --block_count_;
  Range& lowest = ranges_.make();
  lowest.kind = TileKind::Free;
  lowest.residency = Residency::Near;
  lowest.where = where;
  lowest.freeing = freeing_of(block, ticket);
  lowest.knows_whole = false;
  replace(block, lowest);
  free_.add_as_newest(lowest);
  block.unplace();
  blocks_.give_back(block);

  Tile* const beyond = lowest.after;
  Tile* const below = lowest.before;
  mark(lowest, far);
  std::vector<Range*> parts;
  for (Tile* tile = beyond != nullptr ? beyond->before : last_; tile != below;
       tile = tile->before) {
    parts.push_back(static_cast<Range*>(tile));
  }
  join_each(parts);
}

void Layout::mark(Range& range, const std::vector<Stretch>& far) {
  free_.be(range, Residency::Near);
  for (auto stretch = far.rbegin(); stretch != far.rend(); ++stretch) {
    free_.be(cut(range, *stretch), Residency::Far);
  }
}

void Layout::join_all() {
  std::vector<Range*> free;
  for (Tile* tile = last_; tile != nullptr; tile = tile->before) {
    if (Range* const range = as_range(tile, TileKind::Free)) free.push_back(range);
  }
  join_each(free);
}

void Layout::join_each(const std::vector<Range*>& ranges) {
  for (Range* const range : ranges) join(*range);
}

Range& Layout::cut(Range& range, const Stretch& part) {
  const auto split = [&](Size at) -> Range& {
    Range& above = ranges_.make();
    above.kind = range.kind;
    above.where = {at, range.end() - at};
    above.freeing = range.freeing;
    above.residency = range.residency;
    above.knows_whole = false;
    insert_after(range, above);
    const Stretch below{range.begin(), at - range.begin()};
    if (range.kind == TileKind::Free) {
      free_.add_beside(above, range);
      free_.resize(range, below);
    } else {
      list_of(range.kind).insert_after(&range, above);
      range.where = below;
    }
    return above;
  };
  if (part.end() < range.end()) split(part.end());
  return part.offset > range.begin() ? split(part.offset) : range;
}

void Layout::turn_into(Range& range, TileKind kind, Residency residency) {
  if (range.kind == kind) return;
  if (range.kind == TileKind::Free) {
    free_.remove(range);
  } else {
    list_of(range.kind).remove(range);
  }
  if (range.kind == TileKind::Shadow) shadow_bytes_ -= range.size();
  if (kind == TileKind::Shadow) shadow_bytes_ += range.size();
  range.kind = kind;
  range.freeing = {};
  range.residency = kind == TileKind::Free ? residency : Residency::Near;
  range.knows_whole = false;
  if (kind == TileKind::Free) {
    free_.add_as_newest(range);
  } else {
    list_of(kind).push(range);
  }
}

Range* Layout::joinable(const Range& range, Tile* neighbour) const {
  Range* const other = range.kind != TileKind::Broken ? as_range(neighbour, range.kind) : nullptr;
  return other != nullptr && may_join(freed(*other), freed(range)) ? other : nullptr;
}

Range& Layout::join(Range& range) {
  if (Range* const next = joinable(range, range.after)) absorb_next(range, *next);
  Range* const previous = joinable(range, range.before);
  if (previous == nullptr) return range;
  absorb_next(*previous, range);
  return *previous;
}

void Layout::join_beside(const Block& block) {
  if (Range* const above = as_range(block.after, TileKind::Free)) join(*above);
  if (Range* const below = as_range(block.before, TileKind::Free)) join(*below);
}

void Layout::join_within(const Block& block, const Stretch& where) {
  std::vector<Range*> ranges;
  for (Tile* tile = block.after; tile != nullptr && stretch_of(*tile).offset < where.end();
       tile = tile->after) {
    if (Range* const range = as_range(tile, TileKind::Free)) ranges.push_back(range);
  }
  std::reverse(ranges.begin(), ranges.end());
  for (Tile* tile = block.before; tile != nullptr && stretch_of(*tile).end() > where.offset;
       tile = tile->before) {
    if (Range* const range = as_range(tile, TileKind::Free)) ranges.push_back(range);
  }
  join_each(ranges);
}

void Layout::absorb_next(Range& range, Range& next) {
  const Stretch both{range.begin(), range.size() + next.size()};
  if (range.kind == TileKind::Free) {
    free_.share_age(range, next);
    const Freeing freeing = joined(range.freeing, next.freeing);
    if (freeing.ticket.stream != range.freeing.ticket.stream) free_.give_to(range, freeing);
    range.freeing = freeing;
    drop(next);
    free_.resize(range, both);
  } else {
    drop(next);
    range.where = both;
  }
}

void Layout::settle(const StreamOrder& order) {
  std::vector<Range*> done =
      free_.reached([&](const FreeTicket& ticket) { return order.is_free_for_anyone(ticket); });
  for (Range* range : done) free_.give_to(*range, {});
  std::sort(done.begin(), done.end(),
            [](const Range* a, const Range* b) { return a->begin() > b->begin(); });
  join_each(done);
}

void Layout::insert_before(Tile& place, Tile& tile) {
  tile.before = place.before;
  tile.after = &place;
  (tile.before != nullptr ? tile.before->after : first_) = &tile;
  place.before = &tile;
}

void Layout::insert_after(Tile& place, Tile& tile) {
  tile.before = &place;
  tile.after = place.after;
  (tile.after != nullptr ? tile.after->before : last_) = &tile;
  place.after = &tile;
}

void Layout::unlink(Tile& tile) {
  (tile.before != nullptr ? tile.before->after : first_) = tile.after;
  (tile.after != nullptr ? tile.after->before : last_) = tile.before;
}

void Layout::replace(Tile& old, Tile& with) {
  with.before = old.before;
  with.after = old.after;
  (with.before != nullptr ? with.before->after : first_) = &with;
  (with.after != nullptr ? with.after->before : last_) = &with;
}

void Layout::drop(Range& range) {
  if (range.kind == TileKind::Free) {
    free_.remove(range);
  } else {
    list_of(range.kind).remove(range);
  }
  unlink(range);
  ranges_.give_back(range);
}

}  // namespace cuvmm::arena
