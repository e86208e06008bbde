// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/stripes.hpp"

#include <algorithm>
#include <iterator>

namespace cuvmm::arena {

bool Stripes::are_for(Size block, Size unit) {
  constexpr Size few_blocks = 4;
  if (2 * block > unit) return false;
  return unit % block != 0 || unit / block > few_blocks;
}

Size Stripes::blocks_a_stripe(Size block, Size unit, Size chunks) {
  constexpr Size fewest_stripes = 4;  // a chunk
  constexpr Size most_stripes = 8;
  const Size in_chunk = unit / block;
  const Size fewest = (in_chunk + most_stripes - 1) / most_stripes;
  constexpr Size no_memory_has_more = 32;  // patterns, in powers of two
  const Size most = std::min(in_chunk / fewest_stripes, no_memory_has_more);
  // Each block is live or free, so one more block per stripe doubles the patterns, but also adds
  // patterns that leave room for a given one.
  const auto suffice = [&](Size blocks) { return chunks >= (Size{256} << blocks) / blocks; };
  Size blocks = fewest;
  while (blocks < most && suffice(blocks + 1)) ++blocks;
  return blocks;
}

Stripes Stripes::of(Size block, Size unit, Size blocks_a_stripe) {
  constexpr Size share_of_waste = 256;  // at most: the end of the last chunk
  Stripes made{block, unit, blocks_a_stripe};
  while (made.chunks_ * unit % block > made.chunks_ * unit / share_of_waste) ++made.chunks_;
  return made;
}

std::vector<Stripes::Part> Stripes::parts() const {
  std::vector<Part> parts;
  for_each_stripe([&](Stretch stripe) {
    while (stripe.size != 0) {
      const Size size = std::min(stripe.size, unit_ - stripe.offset % unit_);
      parts.push_back({stripe.offset / unit_, {stripe.offset % unit_, size}});
      stripe = {stripe.offset + size, stripe.size - size};
    }
  });
  return parts;
}

std::vector<Stretch> Stripes::stretches() const {
  std::vector<Stretch> stretches;
  Size granule = 0;
  for_each_stripe([&](const Stretch& stripe) {
    const Size offset = stripe.offset % unit_;
    stretches.push_back({granule + offset, stripe.size});
    granule += round_up(offset + stripe.size, unit_);
  });
  return stretches;
}

template <class Visit>
void Stripes::for_each_stripe(Visit visit) const {
  const Size count = this->count();
  for (Size left = count; left-- > 0;) {
    const Size i = (left + first_) % count;
    const Size begin = blocks() * i / count * block_;
    const Size end = i + 1 == count ? chunks_ * unit_ : blocks() * (i + 1) / count * block_;
    visit(Stretch{begin, end - begin});
  }
}

void StripeRows::add(const Stretch& where, const Stripes& stripes) {
  auto row = rows_.lower_bound(where.offset);
  if (row != rows_.begin() && std::prev(row)->second.end > where.offset) --row;
  while (row != rows_.end() && row->first < where.end()) row = rows_.erase(row);
  rows_.insert({where.offset, {where.end(), stripes}});
}

}  // namespace cuvmm::arena
