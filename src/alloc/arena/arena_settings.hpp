// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/arena/chunk_policy.hpp"
#include "alloc/arena/compactor.hpp"
#include "base/clock.hpp"
#include "base/options.hpp"
#include "vmm/access_set.hpp"
#include "vmm/chunk_store.hpp"

namespace cuvmm {

struct ArenaSettings {
  const char* what = "an arena";  // for traces; a literal
  int device = 0;
  Size granule = usual_granule;  // of the device
  Size reserve = 0;              // bytes of addresses
  Size reserve_least = 0;        // that suffice if there are not so many; 0: all of them
  AccessSet access = AccessSet::none();
  Grow grow = Grow::Loose;
  Size device_memory = unlimited;
  Size smallest_chunk = 0;  // a multiple of the granule; 0: the granule
  ChunkPolicy chunks;
  Export exportable = Export::No;
  Duration wait{1'000'000};        // the longest wait for pending frees
  int reclaim_order = 0;           // among the clients of the store
  Compactor* compactor = nullptr;  // nullptr: live memory never moves
  bool spreads = false;            // blocks of equal size, see arena::Spread
};

}  // namespace cuvmm
