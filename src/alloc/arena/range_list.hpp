// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "alloc/arena/tile.hpp"

namespace cuvmm::arena {

// A list of ranges, oldest first. A range is in at most one list.
class RangeList {
 public:
  Range* oldest() const { return oldest_; }
  Range* newest() const { return newest_; }
  std::size_t count() const { return count_; }

  void push(Range& range) { insert_after(newest_, range); }

  // If `place` is nullptr, inserts the range as the oldest.
  void insert_after(Range* place, Range& range) {
    range.older = place;
    range.newer = place != nullptr ? place->newer : oldest_;
    (range.older != nullptr ? range.older->newer : oldest_) = &range;
    (range.newer != nullptr ? range.newer->older : newest_) = &range;
    ++count_;
  }

  void remove(Range& range) {
    (range.older != nullptr ? range.older->newer : oldest_) = range.newer;
    (range.newer != nullptr ? range.newer->older : newest_) = range.older;
    range.older = range.newer = nullptr;
    --count_;
  }

 private:
  Range* oldest_ = nullptr;
  Range* newest_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace cuvmm::arena
