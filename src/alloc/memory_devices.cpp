// SPDX-License-Identifier: Apache-2.0
// Memory: everything that a device holds.
#include <algorithm>

#include "alloc/memory.hpp"

namespace cuvmm {

Size Memory::mapped_free_on(int ordinal) const {
  Size bytes = 0;
  const auto add = [&](const auto& memory) { bytes += memory.mapped_free(); };
  contexts_.for_each(ordinal, add);
  pools_.for_each(ordinal, add);
  return bytes;
}

Size Memory::spilled_free_on(int ordinal) const {
  Size bytes = 0;
  const auto add = [&](const auto& memory) { bytes += memory.spilled_free(); };
  contexts_.for_each(ordinal, add);
  pools_.for_each(ordinal, add);
  return bytes;
}

Size Memory::release_on(const DeviceMemory& device, Size wanted) {
  Size gone = 0;
  const auto released = [&](auto& memory) {
    if (gone < wanted) gone += memory.release(wanted - gone);
  };
  contexts_.for_each(device.ordinal(), released);
  pools_.for_each(device.ordinal(), released);
  return gone;
}

// Mapped memory is cheaper to reuse than the store's free chunks, so those go first. Mapped memory
// that is released becomes free in the store, which is then trimmed to the rest of the bound.
void Memory::bound_cache(DeviceMemory& device) {
  const Size most = device.most_cached();
  if (most == unlimited || dependencies_.captures.any()) return;
  const Size mapped = mapped_free_on(device.ordinal());
  if (mapped > most) release_on(device, mapped - most);
  const Size still = mapped_free_on(device.ordinal());
  device.store().trim(device.location(), most - std::min(still, most));
}

void Memory::tell_trace() const {
  if (!contexts_.tell_trace()) return;
  pools_.tell_trace();
}

MemoryCounters Memory::counters(int ordinal) const {
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
  counters.mapped_free = mapped_free_on(ordinal);
  counters.native = there->budget().native_bytes();
  counters.chunks = there->chunk_counters();
  return counters;
}

std::vector<RegionUse> Memory::regions(int ordinal) const {
  std::vector<RegionUse> all;
  const auto add = [&](const RegionUse& use) { all.push_back(use); };
  contexts_.for_each(ordinal, [&](const ContextMemory& memory) { memory.for_each_region(add); });
  pools_.for_each(ordinal, [&](const PoolMemory& pool) { pool.for_each_region(add); });
  return all;
}

MemoryInfo Memory::info(const MemoryInfo& of_the_driver) {
  const int ordinal = current_device(dependencies_.driver);
  const DeviceMemory* const memory = devices_.serve(ordinal);
  if (memory == nullptr) return of_the_driver;
  return memory->info(of_the_driver, mapped_free_on(ordinal));
}

std::optional<MemoryInfo> Memory::info_of(const Lessor::Uuid& uuid, const MemoryInfo& seen) const {
  for (const DeviceMemory* const device : devices_.all()) {
    if (device->uuid() != uuid) continue;
    return device->limit() == unlimited ? seen
                                        : device->info(seen, mapped_free_on(device->ordinal()));
  }
  return {};
}

void Memory::program_waited() {
  pools_.program_waited();
  if (settings_.cache.is_none()) return;
  for (DeviceMemory* const device : devices_.all()) bound_cache(*device);
}

bool Memory::make_room() {
  const int ordinal = current_device(dependencies_.driver);
  DeviceMemory* const there = devices_.find(ordinal);
  if (there == nullptr) return false;
  dependencies_.clock.ask_about_frees(ordinal);
  const Size cached = there->give_back_cached();
  return reclaim_from_others(*there, unlimited) + cached > 0;
}

// Reclaims memory on this device that other devices spilled to it and no longer use.
Size Memory::reclaim_from_others(const DeviceMemory& device, Size wanted) {
  Size gone = 0;
  if (settings_.spill.to == SpillTo::Off) return gone;
  for (DeviceMemory* const other : devices_.all()) {
    if (other == &device || gone >= wanted) continue;
    dependencies_.clock.ask_about_frees(other->ordinal());
    gone += other->store().reclaim(device.location(), wanted - gone);
  }
  return gone;
}

InvariantViolation Memory::violation() const {
  if (auto violation = contexts_.violation()) return violation;
  if (auto violation = pools_.violation()) return violation;
  for (const DeviceMemory* const device : devices_.all()) {
    if (auto violation = device->store().violation()) return violation;
  }
  return std::nullopt;
}

}  // namespace cuvmm
