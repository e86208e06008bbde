// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/size.hpp"

namespace cuvmm {

// Reproducible pseudo-random numbers (SplitMix64, public domain).
class RandomNumbers {
 public:
  explicit RandomNumbers(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t mixed = (state_ += 0x9E3779B97F4A7C15u);
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
  }
  // Below `bound`, which is small, so the bias is negligible.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

// The order in which a chunk's slots are handed out. Compaction needs as many chunks as the largest
// number of live pieces over any one offset, so frees should thin out all offsets alike. Random
// orders do that on average. But programs also free regularly, every second block or every third.
// So twelve consecutive chunks share a random order, rotated from one chunk to the next such that
// these patterns hit every slot equally often over the twelve. With more than twelve, patterns of
// other periods would fare worse than with independent random orders.
class SlotOrder {
 public:
  static constexpr std::uint64_t chunks_alike = 12;  // divisible by 2, 3 and 4

  SlotOrder() = default;
  // For chunk number `chunk` among those with the same seed and number of slots.
  SlotOrder(std::uint64_t seed, std::uint64_t chunk, Size slot_count);

  std::vector<std::uint16_t> slots(Size slot_count) const;

 private:
  std::uint32_t seed_ = 0;
  std::uint32_t turn_ = 0;
};

}  // namespace cuvmm
