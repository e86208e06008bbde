// SPDX-License-Identifier: Apache-2.0
#include "alloc/device_holdings.hpp"

#include "alloc/eviction_set.hpp"

namespace cuvmm {

MemoryCounters DeviceHoldings::counters(int ordinal) const {
  MemoryCounters counters;
  const DeviceMemory* const there = devices_.find(ordinal);
  if (there == nullptr) return counters;
  contexts_.for_each(ordinal, [&](const ContextMemory& memory) {
    counters.requested_live += memory.requested();
    counters.moved += memory.moved();
  });
  pools_.for_each(ordinal, [&](const PoolMemory& pool) {
    counters.requested_live += pool.used();
    counters.moved += pool.moved();
  });
  counters.requested_live += there->store().requested();
  counters.mapped_free = mapped_free(ordinal);
  counters.native = there->budget().native_bytes();
  counters.chunks = there->chunk_counters();
  return counters;
}

std::vector<RegionUse> DeviceHoldings::regions(int ordinal) const {
  std::vector<RegionUse> all;
  const auto add = [&](const RegionUse& use) { all.push_back(use); };
  contexts_.for_each(ordinal, [&](const ContextMemory& memory) { memory.for_each_region(add); });
  pools_.for_each(ordinal, [&](const PoolMemory& pool) { pool.for_each_region(add); });
  return all;
}

Size DeviceHoldings::mapped_free(int ordinal) const {
  Size bytes = 0;
  const auto add = [&](const auto& memory) { bytes += memory.mapped_free(); };
  for_each(ordinal, add);
  return bytes;
}

Size DeviceHoldings::spilled_free(int ordinal) const {
  Size bytes = 0;
  const auto add = [&](const auto& memory) { bytes += memory.spilled_free(); };
  for_each(ordinal, add);
  return bytes;
}

// Where the free part of spilled memory lies is not counted, so it is taken to lie everywhere
// alike.
Size DeviceHoldings::cached(const DeviceMemory& device) const {
  const Location here = device.location();
  Size bytes = device.chunk_counters().physical_free + mapped_free(device.ordinal());
  for (const DeviceMemory* const other : devices_.all()) {
    if (other == &device || !other->store().spills()) continue;
    const ChunkCounters spilled_here = other->store().counters(here);
    bytes += spilled_here.physical_free;
    if (spilled_here.physical_in_use == 0) continue;
    const double share = static_cast<double>(spilled_here.physical_in_use) /
                         static_cast<double>(other->store().spilled().physical_in_use);
    bytes += static_cast<Size>(share * static_cast<double>(spilled_free(other->ordinal())));
  }
  return bytes;
}

Size DeviceHoldings::release(int ordinal, Size wanted) const {
  Size gone = 0;
  const auto released = [&](auto& memory) {
    if (gone < wanted) gone += memory.release(wanted - gone);
  };
  for_each(ordinal, released);
  return gone;
}

Size DeviceHoldings::blocking_free(int ordinal) const {
  Size bytes = 0;
  contexts_.for_each(ordinal, [&](const ContextMemory& memory) { bytes += memory.mapped_free(); });
  return bytes;
}

Size DeviceHoldings::release_cheap(int ordinal, Size wanted) const {
  Size gone = 0;
  contexts_.for_each(ordinal, [&](ContextMemory& memory) {
    if (gone < wanted) gone += memory.release_cheap(wanted - gone);
  });
  return gone;
}

std::vector<HeldChunk> DeviceHoldings::chunks(int ordinal) const {
  std::vector<HeldChunk> held;
  const auto list = [&](const auto& memory) { memory.list_held(held); };
  for_each(ordinal, list);
  return held;
}

void DeviceHoldings::begin_eviction(int ordinal, EvictionSet& evicted) const {
  const auto begin = [&](auto& memory) { memory.begin_eviction(evicted); };
  for_each(ordinal, begin);
}

void DeviceHoldings::trace_all() const {
  if (!contexts_.trace_holdings()) return;
  pools_.trace_holdings();
}

InvariantViolation DeviceHoldings::violation() const {
  if (auto violation = contexts_.violation()) return violation;
  if (auto violation = pools_.violation()) return violation;
  for (const DeviceMemory* const device : devices_.all()) {
    if (auto violation = device->store().violation()) return violation;
  }
  return std::nullopt;
}

}  // namespace cuvmm
