// SPDX-License-Identifier: Apache-2.0
// Memory: the contexts that it serves, and which devices may use their memory.
#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "alloc/memory_visits.hpp"
#include "base/log.hpp"

namespace cuvmm {

AccessSet Memory::access_to(CUcontext context, int device) const {
  AccessSet access = AccessSet::of(device);
  for (const PeerAccess& peer : peer_access_) {
    if (peer.of == context) access = access.with(peer.device);
  }
  return access;
}

AccessSet Memory::access_to(CUcontext context) const {
  const int device = device_of(dependencies_.driver, context);
  const Reading reading{contexts_lock_};
  return access_to(context, device);
}

// nullptr if the driver serves the context.
ContextMemory* Memory::context(CUcontext handle) {
  {
    const Reading reading{contexts_lock_};
    const auto found = contexts_.find(handle);
    if (found != contexts_.end()) return found->second->memory.get();
  }
  DeviceMemory* where = devices_.serve(device_of(dependencies_.driver, handle));
  if (where == nullptr) return nullptr;
  dependencies_.clock.context_began(handle);
  const Writing writing{contexts_lock_};
  const auto found = contexts_.find(handle);
  if (found != contexts_.end()) return found->second->memory.get();
  auto served = std::make_unique<ServedContext>(*this, handle);
  auto made = ContextMemory::create(dependencies_.driver, *where, dependencies_.clock, handle,
                                    access_to(handle, where->ordinal()), served->quiescence);
  if (made.ok()) {
    served->memory = std::move(*made);
  } else {
    CUVMM_LOG(Warning, "%s; cuvmm does not serve the context's memory",
              made.error().text().c_str());
  }
  note_context(handle);
  return contexts_.emplace(handle, std::move(served)).first->second->memory.get();
}

bool Memory::is_dead(CUcontext handle) const {
  if (dead_count_.load(std::memory_order_acquire) == 0) return false;
  const Reading reading{contexts_lock_};
  return dead_.contains(handle);
}

void Memory::context_began(CUcontext handle) {
  dependencies_.clock.context_began(handle);
  const Writing writing{contexts_lock_};
  note_context(handle);
  dead_.erase(handle);
  dead_count_.store(dead_.size(), std::memory_order_release);
}

// The caller holds contexts_lock_. A context that owns no memory may still name another's.
void Memory::note_context(CUcontext handle) {
  if (only_context_ == nullptr) only_context_ = handle;
  if (only_context_ != handle) has_several_contexts_.store(true, std::memory_order_relaxed);
}

void Memory::green_context_began(CUgreenCtx green, CUcontext context) {
  const Writing writing{contexts_lock_};
  green_contexts_[green] = context;
  if (!contexts_.contains(context)) {
    contexts_.emplace(context, std::make_unique<ServedContext>(*this, context));
  }
}

CUcontext Memory::context_of(CUgreenCtx green) const {
  const Reading reading{contexts_lock_};
  const auto found = green_contexts_.find(green);
  return found != green_contexts_.end() ? found->second : nullptr;
}

// The driver has destroyed the context and its work.
void Memory::context_ended(CUcontext handle) {
  std::unique_ptr<ServedContext> ended;
  {
    const Writing writing{contexts_lock_};
    std::erase_if(peer_access_, [handle](const PeerAccess& access) {
      return access.by == handle || access.of == handle;
    });
    std::erase_if(green_contexts_, [handle](const auto& one) { return one.second == handle; });
    if (only_context_ == handle) only_context_ = nullptr;
    dead_.insert(handle);
    dead_count_.store(dead_.size(), std::memory_order_release);
    const auto found = contexts_.find(handle);
    if (found != contexts_.end()) {
      ended = std::move(found->second);
      contexts_.erase(found);
    }
  }
  dependencies_.clock.context_ended(handle);
  if (ended == nullptr) return;
  ended->quiescence.context_ended();
  if (ended->memory != nullptr) {
    lending_.forget_all_of(*ended->memory);
    ended->memory->end();
  }
  retired_.add(std::move(ended));
}

Result<void> Memory::peer_access_begins(CUcontext by, CUcontext of) {
  const PeerAccess access{by, of, device_of(dependencies_.driver, by)};
  const int owner = device_of(dependencies_.driver, of);
  const Writing writing{contexts_lock_};
  peer_access_.push_back(access);
  const auto found = contexts_.find(of);
  if (found == contexts_.end() || found->second->memory == nullptr) return {};
  const auto given = found->second->memory->set_access(access_to(of, owner));
  if (!given.ok()) peer_access_.pop_back();
  return given;
}

void Memory::peer_access_ends(CUcontext by, CUcontext of) {
  const int owner = device_of(dependencies_.driver, of);
  const Writing writing{contexts_lock_};
  std::erase_if(peer_access_,
                [&](const PeerAccess& access) { return access.by == by && access.of == of; });
  const auto found = contexts_.find(of);
  if (found == contexts_.end() || found->second->memory == nullptr) return;
  const auto taken = found->second->memory->set_access(access_to(of, owner));
  if (!taken.ok()) CUVMM_LOG(Warning, "%s", taken.error().text().c_str());
}

Size Memory::mapped_free_on(int ordinal) const {
  Size bytes = 0;
  const auto add = [&](const auto& memory) { bytes += memory.mapped_free(); };
  for_each_context(ordinal, add);
  for_each_pool(ordinal, add);
  return bytes;
}

Size Memory::spilled_free_on(int ordinal) const {
  Size bytes = 0;
  const auto add = [&](const auto& memory) { bytes += memory.spilled_free(); };
  for_each_context(ordinal, add);
  for_each_pool(ordinal, add);
  return bytes;
}

Size Memory::release_on(const DeviceMemory& device, Size wanted) {
  Size gone = 0;
  const auto released = [&](auto& memory) {
    if (gone < wanted) gone += memory.release(wanted - gone);
  };
  for_each_context(device.ordinal(), released);
  for_each_pool(device.ordinal(), released);
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
  {
    const Writing alone{contexts_lock_, std::try_to_lock};
    if (!alone.owns_lock()) return;
    for (const auto& [handle, served] : contexts_) {
      if (served->memory != nullptr) served->memory->tell_trace();
    }
  }
  const Writing alone{pools_lock_, std::try_to_lock};
  if (!alone.owns_lock()) return;
  for (const auto& [handle, pool] : pools_) pool->tell_trace();
  for (const auto& pool : ended_pools_) pool->tell_trace();
}

MemoryCounters Memory::counters(int ordinal) const {
  MemoryCounters counters;
  const DeviceMemory* const there = devices_.find(ordinal);
  if (there == nullptr) return counters;
  for_each_context(ordinal, [&](const ContextMemory& memory) {
    counters.requested_live += memory.requested();
    counters.moved += memory.moved();
  });
  for_each_pool(ordinal, [&](const PoolMemory& pool) {
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
  for_each_context(ordinal, [&](const ContextMemory& memory) { memory.for_each_region(add); });
  for_each_pool(ordinal, [&](const PoolMemory& pool) { pool.for_each_region(add); });
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
  {
    const Reading reading{contexts_lock_};
    for (const auto& [handle, served] : contexts_) {
      if (served->memory == nullptr) continue;
      if (auto violation = served->memory->violation()) return violation;
    }
  }
  {
    const Reading reading{pools_lock_};
    for (const auto& [handle, pool] : pools_) {
      if (auto violation = pool->violation()) return violation;
    }
  }
  for (const DeviceMemory* const device : devices_.all()) {
    if (auto violation = device->store().violation()) return violation;
  }
  return std::nullopt;
}

}  // namespace cuvmm
