// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/size.hpp"

namespace cuvmm {

// Numbers that look random and can be repeated (SplitMix64, public domain).
class RandomNumbers {
 public:
  explicit RandomNumbers(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t mixed = (state_ += 0x9E3779B97F4A7C15u);
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
  }
  // Below `bound`, which is small: the bias is of no account.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

// In which order a chunk's slots are handed out. Compaction needs as many chunks as the most live
// pieces over any one offset, so what a program frees should thin all offsets alike. Random orders
// do that up to chance. Programs free regularly, though: every second block, every third. So twelve
// chunks that follow one another share a random order, each turned against the one before it such
// that these combs take every slot equally often from the twelve. More alike would be worse for
// combs of other periods than chance is.
class SlotOrder {
 public:
  static constexpr std::uint64_t chunks_alike = 12;  // divisible by 2, 3 and 4

  SlotOrder() = default;
  // Of the chunk with that number, of those with as many slots and the same seed.
  SlotOrder(std::uint64_t seed, std::uint64_t chunk, Size slot_count);

  std::vector<std::uint16_t> slots(Size slot_count) const;

 private:
  std::uint32_t seed_ = 0;
  std::uint32_t turn_ = 0;
};

}  // namespace cuvmm
