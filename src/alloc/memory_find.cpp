// SPDX-License-Identifier: Apache-2.0
// Memory: finding allocations by address, and marking them.
#include "alloc/memory.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {
namespace {

bool is_blocking(const AllocationFacts& facts) {
  return facts.served == Served::Small || facts.served == Served::Window;
}

// A context's memory ends with it, though its records remain.
std::optional<AllocationMap::Found> if_served(std::optional<AllocationMap::Found> found) {
  if (!found || !is_blocking(found->facts)) return found;
  if (static_cast<const ContextMemory*>(found->facts.owner)->has_ended()) return std::nullopt;
  return found;
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

const PoolMemory* Memory::pool_of(const AllocationFacts& facts) const {
  return facts.served == Served::StreamOrdered ? static_cast<const PoolMemory*>(facts.owner)
                                               : nullptr;
}

const ContextMemory* Memory::context_of(const AllocationFacts& facts) const {
  return is_blocking(facts) ? static_cast<const ContextMemory*>(facts.owner) : nullptr;
}

CUcontext Memory::context_handle_of(const AllocationFacts& facts) const {
  if (facts.served == Served::Imported) return static_cast<CUcontext>(facts.owner);
  const ContextMemory* const context = context_of(facts);
  return context != nullptr ? context->context() : nullptr;
}

void Memory::set_sync_memops(CUdeviceptr address, bool on) {
  const auto found = find_holder(address);
  if (!found || on == ((found->facts.pins & pin::sync_memops) != 0)) return;
  sync_memops_.fetch_add(on ? 1 : -1);
  if (on) {
    pin(address, pin::sync_memops);
  } else if (!is_blocking(found->facts)) {
    found->allocation->drop_pin(pin::sync_memops);
  } else {
    static_cast<ContextMemory*>(found->facts.owner)->unpin(*found->allocation, pin::sync_memops);
  }
}

bool Memory::pin(CUdeviceptr address, std::uint8_t why) {
  const auto found = find_holder(address);
  if (!found) return false;
  // The first pin changes the owner's bookkeeping, so the owner sets it.
  if (is_blocking(found->facts)) {
    static_cast<ContextMemory*>(found->facts.owner)->pin(*found->allocation, why);
  } else if (found->facts.served == Served::StreamOrdered) {
    static_cast<PoolMemory*>(found->facts.owner)->pin(*found->allocation, why);
  } else {
    found->allocation->add_pin(why);
  }
  return true;
}

Result<Memory::Lent> Memory::lend(CUdeviceptr address, const Lending::Secret& fresh) {
  constexpr const char* doing = "lend memory";
  const auto found = find_holder(address);
  if (!found || !is_blocking(found->facts)) {
    return Error::invalid(doing, "it is not blocking memory that cuvmm serves");
  }
  auto& owner = *static_cast<ContextMemory*>(found->facts.owner);
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
