// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "alloc/eviction_set.hpp"
#include "alloc/last_uses.hpp"

namespace cuvmm {

// A chunk behind live memory, and when that was last used.
struct PlacedChunk {
  CUmemGenericAllocationHandle chunk;
  Size size;
  Residency residency;
  LastUses::Moment last;
  bool has_stayed;                  // its blocks are not of the last moments
  LastUses::Moment held_since = 0;  // as far as it was looked: the newest of its blocks
};

// Since when the program holds what it holds.
class Stays {
 public:
  using Moment = LastUses::Moment;
  // What is held at that moment; everything else is forgotten.
  void look(const std::vector<HeldChunk>& held, Moment now);
  // `now` where it was not held when that was looked at.
  Moment since(std::uint64_t holder, Moment now) const;
  bool has_stayed(std::uint64_t holder, Moment now) const {
    return since(holder, now) + long_enough <= now;
  }

 private:
  static constexpr Moment long_enough = 10;
  std::unordered_map<std::uint64_t, Moment> since_;
};

// Those of a device, each once.
std::vector<PlacedChunk> with_last_uses(const std::vector<HeldChunk>& held, const LastUses& uses,
                                        const Stays& stays, int device);

// Which chunks should go to the device and which should leave it.
struct BetterPlaces {
  std::unordered_set<CUmemGenericAllocationHandle> change;
  std::vector<Size> going;  // sizes of those that leave
  Size out = 0;
  Size in = 0;
  bool are_any() const { return !change.empty(); }
};

struct PlaceBounds {
  LastUses::Moment now = 0;
  Size room_near = 0;  // for what comes in without anything going out
  Size room_far = 0;
  Size most = 0;  // to be moved, both ways together
  Size least = 0;
  // What was used since so many moments is in use, and what comes in was used by so many later than
  // what goes out for it. Not each use is noted, so it takes some to be certain.
  LastUses::Moment recent = 5;
  LastUses::Moment margin = 10;
};

// Memory of the device that has not been used for so long that it is cold: at most `wanted` bytes
// of it, of those that were last used earliest.
BetterPlaces find_cold_places(std::vector<PlacedChunk> chunks, LastUses::Moment now, Size wanted);

// Spilled chunks that are in use come in: into free room, and in place of those that were not used
// for longest. As much again goes out, for what the program is about to allocate.
// What it has held for a moment only, it may soon have freed, and is let be.
BetterPlaces find_better_places(std::vector<PlacedChunk> chunks, const PlaceBounds& bounds);

}  // namespace cuvmm
