// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "vmm/stretch.hpp"

namespace cuvmm::arena {

// Which parts of a granule hold bytes that matter, in 512 equal parts. A part counts if any of its
// bytes does.
class LiveParts {
 public:
  static constexpr Size parts = 512;

  // `where` counts from the granule's first byte.
  void mark(const Stretch& where, Size granule) {
    constexpr Size bits = 64;  // of a word
    const Size part = granule / parts;
    const Size end = (where.end() + part - 1) / part;
    for (Size at = where.offset / part; at < end;) {
      const Size count = std::min(end - at, bits - at % bits);
      words_[at / bits] |= (~std::uint64_t{0} >> (bits - count)) << at % bits;
      at += count;
    }
  }

  bool is_empty() const {
    std::uint64_t any = 0;
    for (const std::uint64_t word : words_) any |= word;
    return any == 0;
  }
  bool is_full() const {
    std::uint64_t all = ~std::uint64_t{0};
    for (const std::uint64_t word : words_) all &= word;
    return ~all == 0;
  }
  bool is_within(const LiveParts& other) const { return within(other) == *this; }
  LiveParts within(const LiveParts& other) const {
    LiveParts both = *this;
    for (std::size_t i = 0; i < words_.size(); ++i) both.words_[i] &= other.words_[i];
    return both;
  }
  int count() const {
    int sum = 0;
    for (const std::uint64_t word : words_) sum += std::popcount(word);
    return sum;
  }
  bool overlaps(const LiveParts& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if ((words_[i] & other.words_[i]) != 0) return true;
    }
    return false;
  }
  void add(const LiveParts& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  // Undoes add(other), which must not have overlapped what was there before.
  void take(const LiveParts& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
  }
  bool operator==(const LiveParts& other) const { return words_ == other.words_; }
  struct Hash {
    std::size_t operator()(const LiveParts& live) const {
      std::uint64_t hash = 0;
      for (const std::uint64_t word : live.words_) {
        hash = (std::rotl(hash, 5) ^ word) * 0x9e3779b97f4a7c15;
      }
      return hash ^ hash >> 32;
    }
  };

 private:
  std::array<std::uint64_t, parts / 64> words_{};
};

}  // namespace cuvmm::arena
