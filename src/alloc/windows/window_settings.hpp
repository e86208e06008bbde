// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/windows/quiescence.hpp"
#include "base/clock.hpp"
#include "vmm/access_set.hpp"
#include "vmm/chunk_store.hpp"

namespace cuvmm {

// The addresses that windows need for so much memory: the smallest blocks take a granule of
// addresses each, so a granule of memory can need this many.
constexpr Size addresses_of_windows(Size memory, Size granule) {
  constexpr Size windows_a_granule = 33;
  const Size whole = round_up(memory, granule);
  return whole > unlimited / windows_a_granule ? round_down(unlimited, granule)
                                               : whole * windows_a_granule;
}

struct WindowSettings {
  int device = 0;
  Size granule = usual_granule;  // of the device
  Size device_memory = 0;        // total memory of the card
  AccessSet access;              // to all windows
  Size reserve_step = 64 * GiB;  // of addresses
  Size reserve_most = 0;         // 0: what the smallest windows need for the whole card
  Export exportable = Export::No;
  Duration wait{1'000'000};  // under pressure, before failing with out of memory
  int reclaim_order = 0;     // among the clients of the store
  std::uint64_t seed = 1;
  Quiescence* quiescence = nullptr;  // nullptr: live memory never moves. Outlives the windows

  ChunkKind kind(Size size) const { return {size, Location::device(device), exportable}; }
};

}  // namespace cuvmm
