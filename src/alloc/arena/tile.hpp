// SPDX-License-Identifier: Apache-2.0
// The tiles that partition an arena's addresses, from the first byte to the last.
#pragma once

#include <atomic>

#include "alloc/allocation.hpp"
#include "stream/free_ticket.hpp"
#include "vmm/location.hpp"
#include "vmm/stretch.hpp"

namespace cuvmm {
namespace arena {

// Offsets and sizes of blocks are multiples of it.
inline constexpr Size step = 512;

enum class TileKind : std::uint8_t {
  Block,   // held by the program, or kept in a stream's cache
  Free,    // mapped but unallocated
  Hole,    // addresses without memory
  Broken,  // mapped, but the driver refused both to set the access and to unmap it
  Shadow,  // mapped, but these bytes of the chunk belong to other addresses where it is mapped too
};

struct Tile {
  Tile* before = nullptr;  // in address order; nullptr at the ends
  Tile* after = nullptr;
  TileKind kind;

  explicit Tile(TileKind of) : kind(of) {}
};

// How free memory came to be free; for anyone unless work may still use it.
struct Freeing {
  FreeTicket ticket;            // of the last free
  bool is_merged = false;       // there were several
  bool is_handed_over = false;  // by a stream that had not allocated the memory
};

// A tile that is not a block.
struct Range : Tile {
  Range() : Tile(TileKind::Hole) {}

  Stretch where;
  Freeing freeing;                        // free ranges
  Residency residency = Residency::Near;  // free ranges: of all their memory

  // Free ranges: links within the same owner and size class.
  Range* next_of_class = nullptr;
  Range* previous_of_class = nullptr;
  // Links by last use for free ranges of at least a unit; in any order for all other kinds.
  Range* older = nullptr;
  Range* newer = nullptr;
  std::uint64_t used_at = 0;  // increases with each use

  // Free ranges: the whole chunks within, if `knows_whole`.
  Stretch whole;
  bool knows_whole = false;

  Size begin() const { return where.offset; }
  Size end() const { return where.end(); }
  Size size() const { return where.size; }
  Range*& next_unused() { return next_of_class; }
};

}  // namespace arena

// A block that an arena hands out.
struct Block : Allocation, arena::Tile {
  Block() : Tile(arena::TileKind::Block) {}
  Block*& next_unused() { return below; }

  StreamId stream = no_stream;  // for which it was allocated

  bool is_behind_others = false;  // other streams' work still used it when it was allocated
  // Guarded by the lock of the stream's cache.
  bool is_cached = false;
  std::atomic<Residency> residency{Residency::Near};  // Far: some of it
  Block* below = nullptr;                             // the next in its bin
  std::uint64_t tick = 0;                             // of its free
};
static_assert(sizeof(Block) <= 96, "a million of them are live");

}  // namespace cuvmm
