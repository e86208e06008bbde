// SPDX-License-Identifier: Apache-2.0
#include "alloc/held_allocations.hpp"

#include "alloc/context_memory.hpp"
#include "alloc/pool_memory.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {
namespace {

// A context's memory ends with it, though its records remain.
std::optional<AllocationMap::Found> if_served(std::optional<AllocationMap::Found> found) {
  if (!found) return found;
  const ContextMemory* const context = found->facts.context_memory();
  return context != nullptr && context->has_ended() ? std::nullopt : found;
}

}  // namespace

std::optional<AllocationMap::Found> HeldAllocations::find_start(CUdeviceptr address) const {
  return if_served(map_.find_start(address));
}

std::optional<AllocationMap::Found> HeldAllocations::find_holder(CUdeviceptr address) const {
  return if_served(map_.find(address));
}

void HeldAllocations::add(Allocation& allocation, Allocation::Holding holding) {
  holding.buffer_id = last_buffer_id_.fetch_add(1, std::memory_order_relaxed) + 1;
  allocation.hold(holding);
  if (!allocation.is_listed()) map_.add(allocation);
}

bool HeldAllocations::try_release(const AllocationMap::Found& found) {
  if (!found.allocation->try_release(found.facts)) return false;
  if ((found.facts.pins & pin::sync_memops) != 0) sync_memops_.fetch_sub(1);
  return true;
}

// Counts first: copies may find the allocation again once it is held.
void HeldAllocations::restore(const AllocationMap::Found& found) {
  if ((found.facts.pins & pin::sync_memops) != 0) sync_memops_.fetch_add(1);
  found.allocation->restore_held();
}

void HeldAllocations::set_sync_memops(CUdeviceptr address, bool on) {
  const auto found = find_holder(address);
  if (!found || on == ((found->facts.pins & pin::sync_memops) != 0)) return;
  sync_memops_.fetch_add(on ? 1 : -1);
  if (on) {
    pin(address, pin::sync_memops);
  } else if (ContextMemory* const context = found->facts.context_memory()) {
    context->unpin(*found->allocation, pin::sync_memops);
  } else {
    found->allocation->drop_pin(pin::sync_memops);
  }
}

bool HeldAllocations::pin(CUdeviceptr address, std::uint8_t why) {
  const auto found = find_holder(address);
  if (!found) return false;
  // The first pin changes the owner's bookkeeping, so the owner sets it.
  if (ContextMemory* const context = found->facts.context_memory()) {
    context->pin(*found->allocation, why);
  } else if (PoolMemory* const pool = found->facts.pool_memory()) {
    pool->pin(*found->allocation, why);
  } else {
    found->allocation->add_pin(why);
  }
  return true;
}

void HeldAllocations::list_opened(Allocation& record, CUdeviceptr address, Size size,
                                  CUcontext context) {
  record.place(address, size);
  add(record, {.asked = size,
               .owner = context,
               .served = Served::Imported,
               .device = static_cast<std::int16_t>(device_of(driver_, context))});
}

void HeldAllocations::unlist_opened(Allocation& record) {
  if ((record.pins() & pin::sync_memops) != 0) sync_memops_.fetch_sub(1);
  record.unplace();
}

}  // namespace cuvmm
