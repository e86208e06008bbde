// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "alloc/arena/allocation_span.hpp"

namespace cuvmm::arena {

// Lays chunks of any sizes into the gaps of a span until nothing is missing.
class GapFill {
 public:
  explicit GapFill(const AllocationSpan& span) {
    for (const Gap& gap : span.gaps) open_.push_back({&gap, 0});
  }

  struct Spot {
    Range* hole;
    Size offset;
  };
  // Where a chunk of that size goes; nullopt if it is of no use.
  std::optional<Spot> lay(Size size) {
    for (Open& open : open_) {
      if (open.need() == 0 || size > open.room()) continue;
      const Size begin = open.gap->is_at_the_back() ? open.gap->missing.end() - open.laid - size
                                                    : open.gap->missing.offset + open.laid;
      open.laid += size;
      return Spot{open.gap->hole, begin};
    }
    return std::nullopt;
  }

  // The gaps that still lack memory.
  struct Lack {
    Size need;
    Size room;
  };
  std::vector<Lack> lacks() const {
    std::vector<Lack> found;
    for (const Open& open : open_) {
      if (open.need() != 0) found.push_back({open.need(), open.room()});
    }
    return found;
  }
  bool is_complete() const {
    for (const Open& open : open_) {
      if (open.need() != 0) return false;
    }
    return true;
  }

 private:
  struct Open {
    const Gap* gap;
    Size laid;
    Size need() const { return gap->missing.size > laid ? gap->missing.size - laid : 0; }
    Size room() const { return gap->hole->size() - laid; }
  };
  std::vector<Open> open_;
};

}  // namespace cuvmm::arena
