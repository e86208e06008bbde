// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "alloc/arena/free_ranges.hpp"
#include "alloc/record_pool.hpp"
#include "base/invariant.hpp"
#include "stream/stream_order.hpp"

namespace cuvmm::arena {

// The division of an arena's addresses into tiles, from the first byte to the last. The layout
// makes no driver calls; callers that map and unmap report it here. Neighbours of the same kind
// form one tile, except for blocks, and for free ranges that become usable at different times or
// differ in residency. Not synchronised.
class Layout {
 public:
  // `unit` is the size of the smallest chunk: holes begin and end at its multiples.
  Layout(CUdeviceptr base, Size size, Size unit);

  // Turns the front of a free range into a block.
  Block& carve(Range& range, Size size, StreamId stream);
  // Turns `where` into a block. It lies within adjacent free ranges, and `first` is any of them.
  Block& carve(Range& first, const Stretch& where, StreamId stream);
  // Turns `where` into a block. It lies within one free range, found from the start.
  Block& carve_at(const Stretch& where);
  // Ends the block. Its memory becomes free for the ticket's stream.
  void give_back(Block& block, const FreeTicket& ticket);
  // The same for a block of which the stretches in `far`, in address order, lie far.
  [[gnu::cold]] void give_back(Block& block, const FreeTicket& ticket,
                               const std::vector<Stretch>& far);

  // Makes `part` of `range` a range of its own, not joined with its neighbours until join(). The
  // addresses below the part stay in `range`.
  Range& cut(Range& range, const Stretch& part);
  void turn_into(Range& range, TileKind kind, Residency residency = Residency::Near);
  // Records that the stretches in `far`, in address order, of a free range lie far, and the rest
  // near. Parts that differ become ranges of their own, not joined with their neighbours until
  // join_all().
  [[gnu::cold]] void mark(Range& range, const std::vector<Stretch>& far);
  [[gnu::cold]] void join_all();
  // Joins the range with neighbours if possible. If several were cut, join the last in address
  // order first. Returns the range that it is part of then.
  Range& join(Range& range);
  // Joins the free range on either side of the block with that range's other neighbour.
  void join_beside(const Block& block);

  // Joins the ranges in `where`, around the block.
  void join_within(const Block& block, const Stretch& where);

  // Ranges whose pending work is known to be done become free for any stream.
  void settle(const StreamOrder& order);

  // Forgets everything: nothing is mapped, and there are no blocks.
  [[gnu::cold]] void clear();

  const FreeRanges& free() const { return free_; }
  const RangeList& holes() const { return holes_; }
  const RangeList& broken() const { return broken_; }
  const RangeList& shadows() const { return shadows_; }
  Size shadow_bytes() const { return shadow_bytes_; }
  // The hole at the end of the addresses; nullptr if the last byte has memory.
  Range* tail() const;
  const Tile* first() const { return first_; }
  Tile* first() { return first_; }
  // The tile with the byte at that offset; `near` is a tile at or before it.
  Tile* tile_at(Size offset, Tile* near) const {
    while (stretch_of(*near).end() <= offset) near = near->after;
    return near;
  }
  // Visits all tiles in address order. The visitor must not add or remove any.
  template <class Visit>
  void for_each(Visit visit) {
    for (Tile* tile = first_; tile != nullptr; tile = tile->after) visit(*tile);
  }

  Size size() const { return size_; }
  Size unit() const { return unit_; }
  CUdeviceptr address_of(Size offset) const { return base_ + offset; }
  Stretch stretch_of(const Tile& tile) const;
  Size block_bytes() const { return block_bytes_; }
  std::size_t block_count() const { return block_count_; }

  // Checks everything except what is mapped, which the layout does not know.
  InvariantViolation violation() const;

 private:
  static Range* as_range(Tile* tile, TileKind kind) {
    return tile != nullptr && tile->kind == kind ? static_cast<Range*>(tile) : nullptr;
  }
  Range* joinable(const Range& range, Tile* neighbour) const;
  void join_each(const std::vector<Range*>& ranges);  // in descending order of address
  void absorb_next(Range& range, Range& next);

  void insert_before(Tile& place, Tile& tile);
  void insert_after(Tile& place, Tile& tile);
  void unlink(Tile& tile);
  void replace(Tile& old, Tile& with);

  RangeList& list_of(TileKind kind) {
    if (kind == TileKind::Shadow) return shadows_;
    return kind == TileKind::Hole ? holes_ : broken_;
  }
  void drop(Range& range);  // its tile and its record
  void be_one_hole();
  Block& make_block(const Stretch& where, StreamId stream, Residency residency);

  const CUdeviceptr base_;
  const Size size_;
  const Size unit_;
  Tile* first_ = nullptr;
  Tile* last_ = nullptr;
  FreeRanges free_;
  RangeList holes_;
  RangeList broken_;
  RangeList shadows_;
  Size shadow_bytes_ = 0;
  Size block_bytes_ = 0;
  std::size_t block_count_ = 0;
  RecordPool<Block> blocks_;
  RecordPool<Range> ranges_;
};

}  // namespace cuvmm::arena
