// SPDX-License-Identifier: Apache-2.0
// What an arena's addresses are laid out in: tiles side by side, from its first byte to its last.
#pragma once

#include <atomic>

#include "alloc/allocation.hpp"
#include "stream/free_ticket.hpp"
#include "vmm/location.hpp"
#include "vmm/stretch.hpp"

namespace cuvmm {
namespace arena {

// Blocks begin at, and are as large as, multiples of it.
inline constexpr Size step = 512;

enum class TileKind : std::uint8_t {
  Block,   // the program's, or kept in a stream's cache
  Free,    // mapped and nobody's
  Hole,    // addresses without memory
  Broken,  // mapped, but the driver refused both to grant the rights to it and to take it out
};

struct Tile {
  Tile* before = nullptr;  // in address order; nullptr at the ends
  Tile* after = nullptr;
  TileKind kind;

  explicit Tile(TileKind of) : kind(of) {}
};

// Every tile that is not a block.
struct Range : Tile {
  Range() : Tile(TileKind::Hole) {}

  Stretch where;
  FreeTicket ticket;                      // of a free one: since when
  bool is_merged = false;                 // of several frees, of which the ticket is the last
  Residency residency = Residency::Near;  // the memory of a free one, all of it

  // Free: others of its owner and size class.
  Range* next_of_class = nullptr;
  Range* previous_of_class = nullptr;
  // Free ones of a unit and up by their last use; holes and broken ones in any order.
  Range* older = nullptr;
  Range* newer = nullptr;
  std::uint64_t used_at = 0;  // counts up

  // The whole chunks within a free one, where that is known.
  Stretch whole;
  bool knows_whole = false;

  Size begin() const { return where.offset; }
  Size end() const { return where.end(); }
  Size size() const { return where.size; }
  Range*& next_unused() { return next_of_class; }
};

}  // namespace arena

// What an arena hands out.
struct Block : Allocation, arena::Tile {
  Block() : Tile(arena::TileKind::Block) {}
  Block*& next_unused() { return below; }

  StreamId stream = no_stream;  // that it was allocated for

  bool is_behind_others = false;  // other streams' work used it still when it was allocated
  // Guarded by the lock of the stream's cache.
  bool is_cached = false;
  std::atomic<Residency> residency{Residency::Near};  // Far: some of it
  Block* below = nullptr;                             // the next of its size
  std::uint64_t tick = 0;                             // of its free
};
static_assert(sizeof(Block) <= 96, "a million of them are live");

}  // namespace cuvmm
