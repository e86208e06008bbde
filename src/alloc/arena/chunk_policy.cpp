// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/chunk_policy.hpp"

#include <algorithm>

namespace cuvmm {
namespace {

Size power_below(Size size, Size smallest) {
  Size power = smallest;
  while (power <= size / 2) power *= 2;
  return power;
}

}  // namespace

Size ChunkPolicy::most(const Supply& supply) const {
  const Size all = saturating_sum(supply.held, supply.room);
  return std::min({largest, all / share_of_all, supply.room / share_of_room});
}

Size ChunkPolicy::choose(Size need, Size gap, Size smallest, Grow grow,
                         const Supply& supply) const {
  Size wished = need;
  if (grow == Grow::Loose) wished = std::max(wished, supply.mapped / share_of_mapped);
  return power_below(std::min({wished, gap, most(supply)}), smallest);
}

}  // namespace cuvmm
