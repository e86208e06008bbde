// SPDX-License-Identifier: Apache-2.0
// Memory: finding allocations by address, and marking them.
#include "alloc/memory.hpp"
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

std::optional<AllocationMap::Found> Memory::find_start(CUdeviceptr address) const {
  return if_served(map_.find_start(address));
}

std::optional<AllocationMap::Found> Memory::find_holder(CUdeviceptr address) const {
  return if_served(map_.find(address));
}

std::optional<AllocationFacts> Memory::find(CUdeviceptr address) const {
  const auto found = find_holder(address);
  return found ? std::optional{found->facts} : std::nullopt;
}

CUcontext Memory::context_of(const AllocationFacts& facts) const {
  const ContextMemory* const context = facts.context_memory();
  return context != nullptr ? context->context() : facts.importer();
}

void Memory::set_sync_memops(CUdeviceptr address, bool on) {
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

bool Memory::pin(CUdeviceptr address, std::uint8_t why) {
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

Result<Memory::Lent> Memory::lend(CUdeviceptr address, const Lending::Secret& fresh) {
  constexpr const char* doing = "lend memory";
  const auto found = find_holder(address);
  if (!found || !found->facts.is_blocking()) {
    return Error::invalid(doing, "it is not blocking memory that cuvmm serves");
  }
  ContextMemory& owner = *found->facts.context_memory();
  if (owner.device().exportable() == Export::No) {
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = doing,
                 .subject = "the device gives no memory to other processes"};
  }
  owner.pin(*found->allocation, pin::legacy_ipc);
  const Lent lent{found->facts.buffer_id, lending_.lend(*found->allocation, found->facts, fresh)};
  // Another thread may be freeing it, and may have looked before it was pinned.
  const auto still = find_holder(address);
  if (still && still->facts.buffer_id == lent.id) return lent;
  lending_.forget(lent.id);
  return Error::invalid(doing, "it is being freed");
}

void Memory::list_opened(Allocation& record, CUdeviceptr address, Size size, CUcontext context) {
  record.place(address, size);
  record.hold({.asked = size,
               .buffer_id = last_buffer_id_.fetch_add(1, std::memory_order_relaxed) + 1,
               .owner = context,
               .served = Served::Imported,
               .device = static_cast<std::int16_t>(device_of(dependencies_.driver, context))});
  map_.add(record);
}

void Memory::unlist_opened(Allocation& record) {
  if ((record.pins() & pin::sync_memops) != 0) sync_memops_.fetch_sub(1);
  record.unplace();
}

}  // namespace cuvmm
