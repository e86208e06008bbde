// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "alloc/arena/free_ranges.hpp"
#include "alloc/record_pool.hpp"
#include "base/invariant.hpp"
#include "stream/stream_order.hpp"

namespace cuvmm::arena {

// What lies where in an arena: tiles from its first byte to its last. Knows no driver: who maps and
// unmaps says so here. Neighbours of the same kind are one tile, but for blocks, and for free
// ranges that belong to different streams, or lie near and far. Not synchronised.
class Layout {
 public:
  // `unit` is the size of the smallest chunk: holes begin and end at its multiples.
  Layout(CUdeviceptr base, Size size, Size unit);

  // The front of a free range becomes a block.
  Block& carve(Range& range, Size size, StreamId stream);
  // `where` lies within free ranges side by side, of which `first` is any.
  Block& carve(Range& first, const Stretch& where, StreamId stream);
  // The block is gone; its memory is free, of the ticket's stream.
  void give_back(Block& block, const FreeTicket& ticket);
  // The same for a block of which those stretches lie far, in address order.
  void give_back(Block& block, const FreeTicket& ticket, const std::vector<Stretch>& far);

  // A range of its own for a part of `range`, not joined with its neighbours until join(). What is
  // below the part stays in `range`.
  Range& cut(Range& range, const Stretch& part);
  void turn_into(Range& range, TileKind kind, Residency residency = Residency::Near);
  // Of a free range those stretches lie far, in address order, and the rest near. Parts that differ
  // are ranges of their own, not joined with their neighbours until join_all().
  void mark(Range& range, const std::vector<Stretch>& far);
  void join_all();
  // With neighbours that it may be one with. Where several were cut, the last in address order
  // joins first. Returns what it is part of then.
  Range& join(Range& range);
  // What is free on either side of the block, each with its other neighbour.
  void join_beside(const Block& block);

  // Ranges whose pending work is done, as far as is known, become anybody's.
  void settle(const StreamOrder& order);

  // Nothing is mapped any more, and no block is left.
  void clear();

  const FreeRanges& free() const { return free_; }
  const RangeList& holes() const { return holes_; }
  const RangeList& broken() const { return broken_; }
  // The addresses at the end that have no memory; nullptr where the last byte has.
  Range* tail() const;
  const Tile* first() const { return first_; }
  // Upwards through all tiles; none may come or go meanwhile.
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

  // Everything but what is mapped, which it does not know.
  InvariantViolation violation() const;

 private:
  static Range* as_range(Tile* tile, TileKind kind) {
    return tile != nullptr && tile->kind == kind ? static_cast<Range*>(tile) : nullptr;
  }
  Range* joinable(const Range& range, Tile* neighbour) const;
  void absorb_next(Range& range, Range& next);

  void insert_before(Tile& place, Tile& tile);
  void insert_after(Tile& place, Tile& tile);
  void unlink(Tile& tile);
  void replace(Tile& old, Tile& with);

  RangeList& list_of(TileKind kind) { return kind == TileKind::Hole ? holes_ : broken_; }
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
  Size block_bytes_ = 0;
  std::size_t block_count_ = 0;
  RecordPool<Block> blocks_;
  RecordPool<Range> ranges_;
};

}  // namespace cuvmm::arena
