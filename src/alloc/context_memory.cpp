// SPDX-License-Identifier: Apache-2.0
#include "alloc/context_memory.hpp"

#include <algorithm>

namespace cuvmm {

Result<std::unique_ptr<ContextMemory>> ContextMemory::create(const Driver& driver,
                                                             DeviceMemory& device,
                                                             StreamOrder& order, CUcontext context,
                                                             const AccessSet& access,
                                                             Quiescence& quiescence) {
  auto memory = std::unique_ptr<ContextMemory>{new ContextMemory{device, context}};
  const Size most = saturating_sum(device.memory(), device.most_spilled());
  memory->small_ = TRY(Arena::create(driver, device.store(), order,
                                     {.what = "blocking, below 64 KiB",
                                      .device = device.ordinal(),
                                      .granule = device.granule(),
                                      .reserve = round_up(most, device.granule()),
                                      .reserve_least = round_up(device.memory(), device.granule()),
                                      .access = access,
                                      .grow = device.settings().grow,
                                      .device_memory = device.memory(),
                                      .chunks = {.largest = device.granule()},
                                      .exportable = device.exportable(),
                                      .wait = device.settings().wait}));
  memory->windows_ =
      TRY(Windows::create(driver, device.store(), order,
                          {.device = device.ordinal(),
                           .granule = device.granule(),
                           .device_memory = device.memory(),
                           .access = access,
                           .reserve_most = addresses_of_windows(most, device.granule()),
                           .exportable = device.exportable(),
                           .wait = device.settings().wait,
                           .quiescence = &quiescence}));
  return memory;
}

Result<Allocation*> ContextMemory::allocate(Size asked, const GrowHint& grow_hint,
                                            MemoryPressure& pressure) {
  Allocation* made = nullptr;
  if (served_as(asked) == Served::Small) {
    made = TRY(small_->allocate(asked, no_stream, pressure));
  } else {
    made = TRY(windows_->allocate(asked, grow_hint, pressure));
  }
  requested_.fetch_add(asked, std::memory_order_relaxed);
  return made;
}

// Another thread may have ended the context since this one found the allocation. Then the record
// has no address any more, or loses it before the arena or the windows look.
void ContextMemory::free_after(Allocation& allocation, const FreeTicket& ticket) {
  requested_.fetch_sub(allocation.asked(), std::memory_order_relaxed);
  const CUdeviceptr address = allocation.address();
  if (small_->contains(address)) {
    small_->free(static_cast<Block&>(allocation), ticket);
  } else if (address != 0) {
    windows_->free_after(static_cast<WindowBlock&>(allocation), ticket);
  }
}

void ContextMemory::pin(Allocation& allocation, std::uint8_t why) {
  const CUdeviceptr address = allocation.address();
  if (small_->contains(address)) {
    allocation.add_pin(why);  // small blocks never move
  } else if (address != 0) {
    windows_->pin(static_cast<WindowBlock&>(allocation), why);
  }
}

void ContextMemory::unpin(Allocation& allocation, std::uint8_t why) {
  const CUdeviceptr address = allocation.address();
  if (small_->contains(address)) {
    allocation.drop_pin(why);
  } else if (address != 0) {
    windows_->unpin(static_cast<WindowBlock&>(allocation), why);
  }
}

ChunksBehind ContextMemory::chunks_behind(const Allocation& allocation) const {
  const bool is_small = small_->contains(allocation.address());
  return is_small ? small_->chunks_behind(static_cast<const Block&>(allocation))
                  : windows_->chunks_behind(static_cast<const WindowBlock&>(allocation));
}

Result<void> ContextMemory::set_access(const AccessSet& access) {
  const AccessSet before = small_->access();
  TRY(small_->set_access(access));
  const auto given = windows_->set_access(access);
  // Undo: revoking access that was just granted should succeed.
  if (!given.ok()) static_cast<void>(small_->set_access(before).ok());
  return given;
}

Size ContextMemory::mapped_free() const {
  const ArenaCounters small = small_->counters();
  const WindowCounters windows = windows_->counters();
  const Size held = windows.live_bytes - std::min(windows.spilled_taken, windows.live_bytes);
  const Size physical = windows.physical_bytes - windows.spilled_bytes;
  return small.free - small.spilled_free + small.cached + (physical > held ? physical - held : 0);
}

Moved ContextMemory::moved() const {
  const ArenaCounters small = small_->counters();
  const WindowCounters windows = windows_->counters();
  return {small.moved_chunks + windows.compacted_blocks, small.moved + windows.compacted_bytes};
}

Size ContextMemory::release(Size wanted) {
  const Size gone = windows_->release(wanted);
  return gone < wanted ? gone + small_->release(wanted - gone) : gone;
}

void ContextMemory::end() {
  ended_.store(true, std::memory_order_release);
  small_->end();
  windows_->release_all();
}

InvariantViolation ContextMemory::violation() const {
  if (auto violation = small_->violation()) return violation;
  return windows_->violation();
}

}  // namespace cuvmm
