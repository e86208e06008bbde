// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/chunk_policy.hpp"

#include <algorithm>

namespace cuvmm {
namespace {

// An arena grows by at most this share of itself, so that a small one takes little.
constexpr Size share_of_mapped = 32;
// A chunk is at most this share of what could still be had.
constexpr Size share_of_room = 32;

Size power_below(Size size, Size smallest) {
  Size power = smallest;
  while (power <= size / 2) power *= 2;
  return power;
}

}  // namespace

Size ChunkPolicy::most(const Supply& supply) const {
  return std::min(largest, supply.room / share_of_room);
}

Size ChunkPolicy::choose(Size need, Size gap, Size smallest, Grow grow,
                         const Supply& supply) const {
  Size wished = need;
  if (grow == Grow::Loose) wished = std::max(wished, supply.mapped / share_of_mapped);
  return power_below(std::min({wished, gap, most(supply)}), smallest);
}

}  // namespace cuvmm
