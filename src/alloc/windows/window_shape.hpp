// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/size.hpp"
#include "driver/cuda.hpp"
#include "vmm/location.hpp"
#include "vmm/stretch.hpp"

namespace cuvmm {

// Sizes of blocks below a granule are multiples of it. It is small, so that 20 blocks of 100 KiB,
// say, fit into a granule.
inline constexpr Size window_step = 512;

// Sizes of other blocks are multiples of a host page, so that the blocks begin at one: natively
// they begin at 2 MiB, and a dma-buf must begin at a page.
constexpr Size step_of_block(Size size, Size granule) {
  return size < granule ? window_step : 4 * KiB;
}

// Blocks of at least this size begin at a granule boundary, because their chunks can then be put
// behind another block's addresses. 16 MiB with the usual granule.
constexpr Size smallest_at_granule(Size granule) {
  return 8 * granule;
}

// Where in a chunk pieces of one size lie, so that pieces of different blocks fit together.
enum class Cut : std::uint8_t {
  Slots,      // side by side from the chunk's first byte: blocks below a granule
  Edges,      // at its beginning or its end: the remainders of larger blocks
  Beginning,  // at its beginning: the remainders of blocks that begin at a granule
};

struct Format {
  Cut cut = Cut::Slots;
  Size size = 0;                          // of a piece, less than a granule
  Residency residency = Residency::Near;  // of the chunks

  constexpr Size slot_count(Size granule) const {
    if (cut == Cut::Slots) return granule / size;
    return cut == Cut::Edges ? 2 : 1;
  }
  // The two edges overlap if a piece is larger than half a granule.
  constexpr Stretch slot(Size index, Size granule) const {
    if (cut == Cut::Slots) return {index * size, size};
    return {index == 0 ? 0 : granule - size, size};
  }
  friend constexpr bool operator==(const Format&, const Format&) = default;
};

// The parts of a block of a given size: whole granules, and a piece of one that it shares.
struct Shape {
  Size granted = 0;
  Size granule = 0;

  constexpr bool is_small() const { return granted < granule; }
  constexpr Size whole_bytes() const { return round_down(granted, granule); }
  constexpr Size piece_bytes() const { return granted % granule; }
  constexpr bool has_piece() const { return piece_bytes() != 0; }
  constexpr Size window_bytes() const { return round_up(granted, granule); }
  constexpr Format format(Residency residency = Residency::Near) const {
    if (is_small()) return {Cut::Slots, granted, residency};
    return {granted < smallest_at_granule(granule) ? Cut::Edges : Cut::Beginning, piece_bytes(),
            residency};
  }
  // The offset in its window at which the block begins, if its piece lies at `piece` in a granule.
  // A large block's piece comes either first and ends with its granule, or last and begins with it.
  constexpr Size begins_at(Stretch piece) const { return piece.offset; }
};

// A block at its addresses. They alone determine which bytes of a granule its piece takes, for as
// long as it lives. So its memory can move to the same bytes of another chunk, and nowhere else.
struct PlacedBlock {
  CUdeviceptr address = 0;
  Size granted = 0;
  Size granule = 0;

  constexpr CUdeviceptr window() const { return round_down(address, granule); }
  constexpr Size window_bytes() const { return round_up(address + granted, granule) - window(); }
  constexpr bool has_piece() const { return granted % granule != 0; }

  constexpr Stretch piece() const {
    const Size offset = address % granule;
    if (granted < granule) return {offset, granted};
    if (offset != 0) return {offset, granule - offset};
    return {0, granted % granule};
  }
  // The granule of addresses in which the piece lies.
  constexpr CUdeviceptr piece_window() const {
    const bool is_last = granted >= granule && is_multiple(address, granule);
    return is_last ? address + whole_bytes() : window();
  }
  constexpr CUdeviceptr whole() const { return round_up(address, granule); }
  constexpr Size whole_bytes() const { return round_down(granted, granule); }
};

}  // namespace cuvmm
