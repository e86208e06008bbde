// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "vmm/stretch.hpp"

namespace cuvmm::arena {

// Which parts of a granule hold bytes that matter, in 128 equal parts. A part counts if any of its
// bytes does.
class LiveParts {
 public:
  static constexpr Size parts = 128;

  // `where` counts from the granule's first byte.
  void mark(const Stretch& where, Size granule) {
    const Size part = granule / parts;
    for (Size at = where.offset / part; at * part < where.end(); ++at) {
      words_[at / 64] |= std::uint64_t{1} << at % 64;
    }
  }

  bool is_empty() const { return (words_[0] | words_[1]) == 0; }
  int count() const { return std::popcount(words_[0]) + std::popcount(words_[1]); }
  bool overlaps(const LiveParts& other) const {
    return ((words_[0] & other.words_[0]) | (words_[1] & other.words_[1])) != 0;
  }
  void add(const LiveParts& other) {
    words_[0] |= other.words_[0];
    words_[1] |= other.words_[1];
  }
  // What add() added, if nothing of it was there before.
  void take(const LiveParts& other) {
    words_[0] &= ~other.words_[0];
    words_[1] &= ~other.words_[1];
  }

 private:
  std::array<std::uint64_t, 2> words_{};
};

}  // namespace cuvmm::arena
