// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "alloc/eviction_set.hpp"
#include "alloc/last_uses.hpp"

namespace cuvmm {

// A chunk behind live memory, and when that memory was last used.
struct PlacedChunk {
  CUmemGenericAllocationHandle chunk;
  Size size;
  Residency residency;
  LastUses::Moment last;
  bool has_stayed;                  // none of its blocks is recent
  LastUses::Moment held_since = 0;  // since when its newest block is known to exist
};

// Since when the program has held each of its allocations.
class Stays {
 public:
  using Moment = LastUses::Moment;
  // Records what is held at that moment; forgets everything else.
  void look(const std::vector<HeldChunk>& held, Moment now);
  // `now` if the last look() did not find it.
  Moment since(std::uint64_t holder, Moment now) const;
  bool has_stayed(std::uint64_t holder, Moment now) const {
    return since(holder, now) + long_enough <= now;
  }

 private:
  static constexpr Moment long_enough = 10;
  std::unordered_map<std::uint64_t, Moment> since_;
};

// The chunks of a device that can move, each once.
std::vector<PlacedChunk> with_last_uses(const std::vector<HeldChunk>& held, const LastUses& uses,
                                        const Stays& stays, int device);

struct AddressRange {
  CUdeviceptr address = 0;
  Size size = 0;
  bool overlaps(const HeldChunk& one) const {
    return one.address < address + size && address < one.address + one.size;
  }
};

// Which chunks should move to the device, and which should leave it.
struct BetterPlaces {
  std::unordered_set<CUmemGenericAllocationHandle> change;
  std::vector<Size> going;  // sizes of the chunks that leave
  Size out = 0;
  Size in = 0;
  bool are_any() const { return !change.empty(); }
};

struct PlaceBounds {
  LastUses::Moment now = 0;
  Size room_near = 0;  // for chunks that come in without replacing others
  Size room_far = 0;
  Size most = 0;  // bytes to move, both directions together
  Size least = 0;
  // Memory used within the last `recent` moments is in use. Incoming memory must have been used at
  // least `margin` moments later than the memory it replaces: not every use is observed, so a small
  // difference means little.
  LastUses::Moment recent = 5;
  LastUses::Moment margin = 10;
};

// Selects up to `wanted` bytes of cold device memory: unused for long, least recently used first.
BetterPlaces find_cold_places(std::vector<PlacedChunk> chunks, LastUses::Moment now, Size wanted);

// Brings in those of the named chunks that are spilled, and moves out the least recently used ones
// for which there is no room beside them. Selects nothing if all are near, or they do not fit.
BetterPlaces find_places_near(const std::unordered_set<CUmemGenericAllocationHandle>& named,
                              std::vector<PlacedChunk> chunks, const PlaceBounds& bounds);

// Brings in spilled chunks that are in use: into free room, and in place of the least recently used
// chunks. Moves out twice what that needs, to leave room for the program's next allocations.
// Ignores recently allocated memory, which the program may soon free.
BetterPlaces find_better_places(std::vector<PlacedChunk> chunks, const PlaceBounds& bounds);

}  // namespace cuvmm
