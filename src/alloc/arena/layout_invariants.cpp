// SPDX-License-Identifier: Apache-2.0
// The invariant check of an arena's tiles.
#include <string>
#include <unordered_set>

#include "alloc/arena/layout.hpp"

namespace cuvmm::arena {
namespace {

// Walks tile by tile and remembers the first violation.
class TileWalk {
 public:
  TileWalk(const Layout& layout) : layout_(layout) {}

  void visit(const Tile& tile) {
    const Stretch where = layout_.stretch_of(tile);
    at_ = where.offset;
    if (tile.before != last_) complain("does not know the tile before it");
    if (where.offset != reached_) complain("does not begin where the one before it ends");
    if (where.size == 0 || !is_multiple(where.size, step)) complain("is not in steps");
    if (!where.fits(layout_.size())) complain("reaches beyond the arena");
    reached_ = where.end();
    if (tile.kind == TileKind::Block) {
      block_bytes_ += where.size;
      ++block_count_;
    } else {
      visit_range(static_cast<const Range&>(tile));
    }
    last_ = &tile;
  }

  InvariantViolation finish() {
    at_ = reached_;
    if (reached_ != layout_.size()) complain("the tiles end");
    if (block_bytes_ != layout_.block_bytes() || block_count_ != layout_.block_count()) {
      complain("blocks are counted wrongly");
    }
    check_lists();
    return found_;
  }

 private:
  void complain(const char* what) {
    if (!found_) found_ = "arena: at offset " + std::to_string(at_) + ": " + what;
  }

  void visit_range(const Range& range) {
    switch (range.kind) {
      case TileKind::Free:
        free_.insert(&range);
        ++free_count_;
        free_bytes_ += range.size();
        if (range.residency == Residency::Far) far_bytes_ += range.size();
        if (range.size() >= layout_.unit()) ++large_count_;
        if (const Range* before = as_free(last_); before != nullptr) {
          if (before->freeing.ticket == range.freeing.ticket &&
              before->residency == range.residency)
            complain("two free ranges should be one");
        }
        break;
      case TileKind::Hole:
        holes_.insert(&range);
        if (last_ != nullptr && last_->kind == TileKind::Hole) complain("two holes should be one");
        break;
      case TileKind::Shadow:
        shadows_.insert(&range);
        shadow_bytes_ += range.size();
        if (last_ != nullptr && last_->kind == TileKind::Shadow)
          complain("two shadows should be one");
        break;
      default:
        broken_.insert(&range);
    }
    if (range.kind != TileKind::Free) {
      const bool is_in_chunks =
          is_multiple(range.begin(), layout_.unit()) && is_multiple(range.end(), layout_.unit());
      if (range.kind != TileKind::Shadow && !is_in_chunks) complain("a hole is not in chunks");
      if (!range.freeing.ticket.is_for_anyone()) complain("a hole belongs to a stream");
    }
  }

  static const Range* as_free(const Tile* tile) {
    return tile != nullptr && tile->kind == TileKind::Free ? static_cast<const Range*>(tile)
                                                           : nullptr;
  }

  void check_lists() {
    const FreeRanges& free = layout_.free();
    if (free.bytes() != free_bytes_ || free.far_bytes() != far_bytes_ ||
        free.count() != free_count_) {
      complain("free ranges are counted wrongly");
    }
    check_index(no_stream, free.for_anyone());
    free.for_each_stream(
        [&](StreamId stream, const SizeIndex& index) { check_index(stream, index); });
    if (indexed_ != free_count_) complain("free ranges are missing from the indices");
    check_ages();
    check_list(layout_.holes(), holes_, "the list of holes is wrong");
    check_list(layout_.broken(), broken_, "the list of what is broken is wrong");
    check_list(layout_.shadows(), shadows_, "the list of shadows is wrong");
    if (shadow_bytes_ != layout_.shadow_bytes()) complain("shadows are counted wrongly");
  }

  void check_index(StreamId stream, const SizeIndex& index) {
    std::size_t count = 0;
    Size bytes = 0;
    index.for_each([&](const Range& range) {
      if (free_.count(&range) == 0) return complain("an index holds what is not free");
      if (range.freeing.ticket.stream != stream)
        complain("a free range is in another stream's index");
      const std::uint64_t tick = range.freeing.ticket.tick;
      if (tick < index.earliest() || tick > index.latest())
        complain("a free range is older or younger than its index says");
      ++count;
      bytes += range.size();
    });
    if (count != index.count() || bytes != index.bytes()) complain("an index counts wrongly");
    indexed_ += count;
  }

  void check_ages() {
    std::size_t count = 0;
    const Range* older = nullptr;
    for (const Range* range = layout_.free().by_age().oldest(); range != nullptr;
         range = range->newer) {
      if (free_.count(range) == 0) return complain("what is not free has an age");
      if (range->size() < layout_.unit()) complain("a small free range has an age");
      if (older != nullptr && older->used_at > range->used_at) complain("ages are out of order");
      if (range->older != older) complain("a link between ages is wrong");
      older = range;
      ++count;
    }
    if (count != large_count_) complain("free ranges are missing from the ages");
  }

  void check_list(const RangeList& list, const std::unordered_set<const Range*>& members,
                  const char* what) {
    std::size_t count = 0;
    for (const Range* range = list.oldest(); range != nullptr && count <= members.size();
         range = range->newer) {
      if (members.count(range) == 0) return complain(what);
      ++count;
    }
    if (count != members.size() || count != list.count()) complain(what);
  }

  const Layout& layout_;
  InvariantViolation found_;
  const Tile* last_ = nullptr;
  Size at_ = 0;
  Size reached_ = 0;
  Size block_bytes_ = 0;
  std::size_t block_count_ = 0;
  Size free_bytes_ = 0;
  Size far_bytes_ = 0;
  std::size_t free_count_ = 0;
  std::size_t large_count_ = 0;
  std::size_t indexed_ = 0;
  std::unordered_set<const Range*> free_;
  std::unordered_set<const Range*> holes_;
  std::unordered_set<const Range*> broken_;
  std::unordered_set<const Range*> shadows_;
  Size shadow_bytes_ = 0;
};

}  // namespace

InvariantViolation Layout::violation() const {
  TileWalk walk{*this};
  for (const Tile* tile = first_; tile != nullptr; tile = tile->after) walk.visit(*tile);
  return walk.finish();
}

}  // namespace cuvmm::arena
