// SPDX-License-Identifier: Apache-2.0
// Memory: the program's pools. The driver serves those that can be shared with other processes, lie
// on the host, or have a limit of their own.
#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "alloc/device_compactor.hpp"
#include "alloc/memory.hpp"
#include "base/log.hpp"

namespace cuvmm {
namespace {

bool is_ours_to_serve(const CUmemPoolProps& properties) {
  return properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
         properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
         properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties.maxSize == 0 &&
         properties.usage == 0;
}

}  // namespace

void Memory::pool_created(CUmemoryPool handle, const CUmemPoolProps& properties) {
  if (!is_ours_to_serve(properties)) return;
  const Writing writing{pools_lock_};
  created_pools_[handle] = properties.location.id;
}

// The pool is kept aside while the program holds memory of it.
void Memory::pool_ended(CUmemoryPool handle) {
  current_pool_changed();
  {
    const Writing writing{pools_lock_};
    created_pools_.erase(handle);
    const auto found = pools_.find(handle);
    if (found == pools_.end()) return;
    found->second->end();
    ended_pools_.push_back(std::move(found->second));
    pools_.erase(found);
  }
  settle_ended_pools();
}

void Memory::settle_ended_pools() {
  std::vector<const PoolMemory*> settled;
  {
    const Reading reading{pools_lock_};
    for (const auto& pool : ended_pools_) {
      if (pool->settle_end()) settled.push_back(pool.get());
    }
  }
  if (settled.empty()) return retired_.drop();
  std::vector<std::unique_ptr<PoolMemory>> past;
  {
    const Writing writing{pools_lock_};
    for (auto& pool : ended_pools_) {
      if (std::find(settled.begin(), settled.end(), pool.get()) == settled.end()) continue;
      past.push_back(std::move(pool));
    }
    std::erase(ended_pools_, nullptr);
  }
  for (auto& pool : past) retired_.add(std::move(pool));
}

void Memory::program_waited() {
  {
    const Reading reading{pools_lock_};
    for (const auto& [handle, pool] : pools_) pool->program_waited();
  }
  if (settings_.cache.is_none()) return;
  for (DeviceMemory* const device : devices_.all()) bound_cache(*device);
}

void Memory::current_pool_changed() {
  const Writing writing{pools_lock_};
  pool_changes_.fetch_add(1);
  for (PoolsOfDevice& there : pools_of_devices_) there.current_is_known.store(false);
}

PoolMemory* Memory::pool(CUmemoryPool handle) {
  int ordinal = -1;
  {
    const Reading reading{pools_lock_};
    const auto found = pools_.find(handle);
    if (found != pools_.end()) return found->second.get();
    const auto created = created_pools_.find(handle);
    if (created != created_pools_.end()) ordinal = created->second;
  }
  if (ordinal < 0) ordinal = device_of_default_pool(handle);
  return ordinal < 0 ? nullptr : make_pool(handle, ordinal);
}

// -1 if it is no device's default pool.
int Memory::device_of_default_pool(CUmemoryPool handle) const {
  int count = 0;
  if (dependencies_.driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) return -1;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUmemoryPool standard = nullptr;
    if (dependencies_.driver.cuDeviceGetDefaultMemPool(&standard, ordinal) != CUDA_SUCCESS)
      continue;
    if (standard == handle) return ordinal;
  }
  return -1;
}

PoolMemory* Memory::make_pool(CUmemoryPool handle, int ordinal) {
  DeviceMemory* where = devices_.serve(ordinal);
  if (where == nullptr) return nullptr;
  settle_ended_pools();
  const Writing writing{pools_lock_};
  const auto found = pools_.find(handle);
  if (found != pools_.end()) return found->second.get();
  auto& compactor = pools_of_devices_[static_cast<std::size_t>(ordinal)].compactor;
  if (compactor == nullptr) compactor = std::make_unique<DeviceCompactor>(*this, ordinal);
  auto made = PoolMemory::create(dependencies_.driver, *where, dependencies_.clock, handle,
                                 settings_.compact == Compact::All ? compactor.get() : nullptr);
  if (!made.ok()) {
    CUVMM_LOG(Warning, "%s; cuvmm does not serve the pool's memory", made.error().text().c_str());
    created_pools_.erase(handle);
    return nullptr;
  }
  return pools_.emplace(handle, std::move(*made)).first->second.get();
}

// nullptr if cuvmm serves no pool of the device.
Compactor* Memory::compactor_of(int device) const {
  const Reading reading{pools_lock_};
  return pools_of_devices_[static_cast<std::size_t>(device)].compactor.get();
}

PoolMemory* Memory::current_pool(int ordinal) {
  if (ordinal < 0 || ordinal >= AccessSet::most_devices) return nullptr;
  PoolsOfDevice& there = pools_of_devices_[static_cast<std::size_t>(ordinal)];
  if (there.current_is_known.load(std::memory_order_acquire)) {
    return there.current.load(std::memory_order_acquire);
  }
  const Driver& driver = dependencies_.driver;
  CUmemoryPool current = nullptr;
  const std::uint64_t changes = pool_changes_.load();
  if (driver.cuDeviceGetMemPool(&current, ordinal) != CUDA_SUCCESS) return nullptr;
  PoolMemory* found = pool(current);
  const Writing writing{pools_lock_};
  if (changes != pool_changes_.load()) return found;  // ask again the next time
  there.current.store(found, std::memory_order_release);
  there.current_is_known.store(true, std::memory_order_release);
  return found;
}

}  // namespace cuvmm
