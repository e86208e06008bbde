// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "alloc/arena/layout.hpp"

namespace cuvmm::arena {

// Turns parts of tiles into tiles of another kind. Until join(), no tile is destroyed: pointers to
// tiles stay valid, and a tile's beginning never moves up.
class TileChanges {
 public:
  explicit TileChanges(Layout& layout) : layout_(layout) {}
  ~TileChanges() { join(); }
  TileChanges(const TileChanges&) = delete;
  TileChanges& operator=(const TileChanges&) = delete;

  // Turns everything of kind `from` within `where` into `to`. `near` is a tile at or before
  // `where`.
  void turn(Tile* near, const Stretch& where, TileKind from, TileKind to,
            Residency residency = Residency::Near) {
    Tile* tile = layout_.tile_at(where.offset, near);
    while (tile != nullptr) {
      const Stretch has = layout_.stretch_of(*tile);
      if (has.offset >= where.end()) return;
      if (tile->kind == from) {
        const Size begin = std::max(has.offset, where.offset);
        const Size end = std::min(has.end(), where.end());
        Range& part = layout_.cut(static_cast<Range&>(*tile), {begin, end - begin});
        layout_.turn_into(part, to, residency);
        changed_.push_back(&part);
        // The rest of a tile that was changed before is a change too.
        if (has.end() > end) changed_.push_back(static_cast<Range*>(part.after));
        tile = &part;
      }
      tile = tile->after;
    }
  }

  // Free ranges and shadows there lose their memory.
  void take_memory(Tile* near, const Stretch& where) {
    turn(near, where, TileKind::Free, TileKind::Hole);
    turn(near, where, TileKind::Shadow, TileKind::Hole);
  }

  void join() {
    std::sort(changed_.begin(), changed_.end(),
              [](const Range* a, const Range* b) { return a->begin() > b->begin(); });
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (Range* const range : changed_) layout_.join(*range);
    changed_.clear();
  }

 private:
  Layout& layout_;
  std::vector<Range*> changed_;
};

}  // namespace cuvmm::arena
