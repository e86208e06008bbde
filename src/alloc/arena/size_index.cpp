// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/size_index.hpp"

#include <algorithm>

namespace cuvmm::arena {

void SizeIndex::add(Range& range) {
  const std::size_t c = class_of(range.size());
  range.previous_of_class = nullptr;
  range.next_of_class = first_[c];
  if (first_[c] != nullptr) first_[c]->previous_of_class = &range;
  first_[c] = &range;
  used_[c / 64] |= std::uint64_t{1} << (c % 64);
  used_words_ |= std::uint64_t{1} << (c / 64);
  ++count_;
  bytes_ += range.size();
  earliest_ = std::min(earliest_, range.freeing.ticket.tick);
  latest_ = std::max(latest_, range.freeing.ticket.tick);
}

void SizeIndex::remove(Range& range) {
  --count_;
  bytes_ -= range.size();
  if (count_ == 0) {
    earliest_ = no_tick;
    latest_ = 0;
  }
  if (range.next_of_class != nullptr) {
    range.next_of_class->previous_of_class = range.previous_of_class;
  }
  if (range.previous_of_class != nullptr) {
    range.previous_of_class->next_of_class = range.next_of_class;
    return;
  }
  const std::size_t c = class_of(range.size());
  first_[c] = range.next_of_class;
  if (first_[c] != nullptr) return;
  used_[c / 64] &= ~(std::uint64_t{1} << (c % 64));
  if (used_[c / 64] == 0) used_words_ &= ~(std::uint64_t{1} << (c / 64));
}

Size SizeIndex::largest() const {
  if (used_words_ == 0) return 0;
  const std::size_t word = static_cast<std::size_t>(std::bit_width(used_words_)) - 1;
  const std::size_t c = word * 64 + static_cast<std::size_t>(std::bit_width(used_[word])) - 1;
  Size largest = 0;
  for (const Range* range = first_[c]; range != nullptr; range = range->next_of_class) {
    largest = std::max(largest, range->size());
  }
  return largest;
}

}  // namespace cuvmm::arena
