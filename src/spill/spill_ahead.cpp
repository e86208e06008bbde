// SPDX-License-Identifier: Apache-2.0
#include "spill/spill_ahead.hpp"

#include <algorithm>

#include "base/host_memory.hpp"

namespace cuvmm {
namespace {

constexpr Size share_of_host = 16;

// The largest chunk that arenas ask for.
constexpr Size largest_chunk = 32 * MiB;

constexpr std::uint64_t idle_ns = 30ull * 1'000'000'000;

// Nearly full: less than one part in `last_share` is left.
constexpr Size last_share = 8;

}  // namespace

bool is_nearly_full(DeviceMemory& device) {
  const Size most = std::min(device.limit(), device.memory());
  const Size held = device.budget().committed_bytes() + device.budget().native_bytes();
  return held > most - most / last_share;
}

bool SpillAhead::step(DeviceMemory& device, Size mapped, std::uint64_t now) {
  ChunkStore& store = device.store();
  if (!store.spills()) return false;
  const ChunkCounters spilled = store.spilled();
  Seen& seen = seen_[device.ordinal()];
  const bool is_full = is_nearly_full(device);
  if (is_full || spilled.physical_in_use != seen.spilled) seen.needed_at = now;
  seen.spilled = spilled.physical_in_use;
  const Size used = spilled.physical_in_use - std::min(mapped, spilled.physical_in_use);
  seen.most_used = std::max(seen.most_used, used);
  const Size ready = spilled.physical_free + mapped;
  if (is_full) {
    // Enough to reach the peak use again, plus `most_ahead_`.
    const Size beyond = seen.most_used - used + most_ahead_;
    const Size wanted =
        std::min({beyond, store.spill_room() / 4, available_host_memory() / share_of_host});
    // Roughly doubles what is ready, so that small chunks exist for the remainder.
    Size size = device.granule();
    while (size * 2 <= std::min(ready, largest_chunk)) size *= 2;
    if (ready + size <= wanted) return store.make_spilled_ready(size).ok();
  }
  if (now < seen.needed_at + idle_ns) return false;
  seen.most_used = used;
  return ready != 0 && store.reclaim_spilled(largest_chunk) != 0;
}

}  // namespace cuvmm
