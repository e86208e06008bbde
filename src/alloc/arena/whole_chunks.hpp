// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/arena/tile.hpp"
#include "vmm/mapping.hpp"

namespace cuvmm::arena {

// The chunks that lie wholly within a free range. They are adjacent: only the chunks at the ends of
// the range may reach beyond it.
class WholeChunks {
 public:
  explicit WholeChunks(const Mapping& mapping) : mapping_(mapping) {}

  // From the first byte of the first one to the last byte of the last.
  Stretch of(Range& range) const {
    if (!range.knows_whole) {
      range.whole = find(range.where);
      range.knows_whole = true;
    }
    return range.whole;
  }
  const MappedChunk& at(Size offset) const { return *mapping_.find(offset); }

 private:
  Stretch find(const Stretch& where) const {
    const Stretch first = at(where.offset).where();
    const Stretch last = at(where.end() - 1).where();
    const Size begin = first.offset == where.offset ? first.offset : first.end();
    const Size end = last.end() == where.end() ? last.end() : last.offset;
    return begin < end ? Stretch{begin, end - begin} : Stretch{};
  }

  const Mapping& mapping_;
};

}  // namespace cuvmm::arena
