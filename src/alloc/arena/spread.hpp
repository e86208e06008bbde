// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/size.hpp"

namespace cuvmm::arena {

// Lays blocks of equal size that are allocated one after another side by side in random order. What
// a program frees in a regular pattern then leaves free bytes at different offsets of its granules,
// so that granules can share chunks (sharing.hpp). Blocks of changing sizes lie as they come.
class Spread {
 public:
  static constexpr Size smallest = 64 * KiB;  // of the blocks that are laid so

  void note(Size size) {
    run_ = size == last_ ? run_ + 1 : 1;
    last_ = size;
    leaves_ = is_settled_ = false;
  }
  // How many blocks of that size to lay side by side.
  Size count(Size size) const {
    constexpr unsigned least_run = 4;
    constexpr Size most_bytes = 32 * MiB;
    constexpr Size most = 8;
    if (size != last_ || run_ < least_run || size < smallest) return 1;
    return std::clamp(most_bytes / size, Size{1}, most);
  }
  // Whether to leave the last of several places side by side for the block after next. Otherwise
  // blocks that are freed at regular intervals would always have the same place among their
  // neighbours.
  bool leaves_last(Size size) {
    if (is_settled_) return false;
    leaves_ = leaves_ || (count(size) > 1 && pick(4) == 0);
    return leaves_;
  }
  // The next block takes any free place.
  void settle() { is_settled_ = true; }
  // One of so many places.
  Size pick(Size places) {
    // splitmix64: a linear generator's numbers correlate with the order of blocks in a chunk.
    std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return (mixed ^ mixed >> 31) % places;
  }

 private:
  Size last_ = 0;
  unsigned run_ = 0;
  bool leaves_ = false;
  bool is_settled_ = false;
  std::uint64_t state_ = 1;
};

}  // namespace cuvmm::arena
