// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>

#include "alloc/arena/tile.hpp"

namespace cuvmm::arena {

// How many ranges of one class to examine before taking the best so far.
using Patience = std::size_t;
inline constexpr Patience usual_patience = 32;
inline constexpr Patience endless = ~Patience{0};

// Free ranges by size, in classes: one for each size up to 512 KiB, then 64 for each power of two.
// Finding the first non-empty class takes a few words of bitmap, however many ranges there are.
class SizeIndex {
 public:
  void add(Range& range);
  void remove(Range& range);

  std::size_t count() const { return count_; }
  Size bytes() const { return bytes_; }
  // All ranges were freed between these ticks of their stream.
  std::uint64_t earliest() const { return earliest_; }
  std::uint64_t latest() const { return latest_; }
  void raise_earliest(std::uint64_t tick) { earliest_ = tick; }

  // The smallest accepted range of at least `size` bytes; between equal ranges of a large class,
  // the lowest in address order. Exact with endless patience, otherwise approximate.
  template <class Accept>
  Range* best_fit(Size size, Patience patience, Accept accept) const {
    for (std::size_t c = next_used(class_of(size)); c < classes; c = next_used(c + 1)) {
      Range* best = nullptr;
      Patience left = patience;
      for (Range* range = first_[c]; range != nullptr && left != 0; range = range->next_of_class) {
        --left;
        if (range->size() < size || (best != nullptr && !is_better(*range, *best))) continue;
        if (!accept(*range)) continue;
        best = range;
        if (c < exact_classes) break;
      }
      if (best != nullptr) return best;
    }
    return nullptr;
  }

  template <class Visit>
  void for_each(Visit visit) const {
    for (std::size_t c = next_used(0); c < classes; c = next_used(c + 1)) {
      for (Range* range = first_[c]; range != nullptr; range = range->next_of_class) visit(*range);
    }
  }

  Size largest() const;

 private:
  static constexpr std::size_t exact_classes = 1024;  // for sizes below this many steps
  static constexpr int first_power = 10;              // 2^10 steps
  static constexpr int powers = 28;                   // up to 128 TiB
  static constexpr int bits_in_power = 6;
  static constexpr std::size_t classes = exact_classes + (std::size_t{powers} << bits_in_power);
  static constexpr std::size_t words = classes / 64;
  static_assert(classes % 64 == 0 && words <= 64);

  static std::size_t class_of(Size size) {
    const Size steps = size / step;
    if (steps < exact_classes) return steps;
    const int power = static_cast<int>(std::bit_width(steps)) - 1;
    const Size part = (steps >> (power - bits_in_power)) & ((Size{1} << bits_in_power) - 1);
    return exact_classes + (static_cast<Size>(power - first_power) << bits_in_power) + part;
  }
  static bool is_better(const Range& a, const Range& b) {
    return a.size() != b.size() ? a.size() < b.size() : a.begin() < b.begin();
  }

  // The first non-empty class from `from` on; `classes` if there is none.
  std::size_t next_used(std::size_t from) const {
    if (from >= classes) return classes;
    std::size_t word = from / 64;
    const std::uint64_t here = used_[word] >> (from % 64);
    if (here != 0) return from + static_cast<std::size_t>(std::countr_zero(here));
    if (++word == words) return classes;
    const std::uint64_t above = used_words_ >> word;
    if (above == 0) return classes;
    word += static_cast<std::size_t>(std::countr_zero(above));
    return word * 64 + static_cast<std::size_t>(std::countr_zero(used_[word]));
  }

  std::array<Range*, classes> first_{};
  std::array<std::uint64_t, words> used_{};  // one bit per class
  std::uint64_t used_words_ = 0;             // one bit per word of used_
  std::size_t count_ = 0;
  Size bytes_ = 0;
  static constexpr std::uint64_t no_tick = ~std::uint64_t{0};
  std::uint64_t earliest_ = no_tick;
  std::uint64_t latest_ = 0;
};

}  // namespace cuvmm::arena
