// SPDX-License-Identifier: Apache-2.0
#include "alloc/served_pools.hpp"

#include <algorithm>
#include <mutex>
#include <shared_mutex>

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

void ServedPools::created(CUmemoryPool handle, const CUmemPoolProps& properties) {
  if (!is_ours_to_serve(properties)) return;
  const Writing writing{lock_};
  created_[handle] = properties.location.id;
}

ServedPools::Leaving ServedPools::about_to_end(CUmemoryPool handle) {
  Leaving leaving;
  const Writing writing{lock_};
  leaving.created = created_.extract(handle);
  // The program cannot end a device's default pool, which it has not created.
  if (!leaving.created.empty()) leaving.memory = pools_.extract(handle);
  return leaving;
}

void ServedPools::stayed(Leaving pool) {
  const Writing writing{lock_};
  created_.insert(std::move(pool.created));
  pools_.insert(std::move(pool.memory));  // nothing if it has not been used yet
}

// The pool is kept aside while the program holds memory of it.
void ServedPools::ended(Leaving pool) {
  current_changed();
  if (pool.memory.empty()) return;
  {
    const Writing writing{lock_};
    pool.memory.mapped()->end();
    ended_.push_back(std::move(pool.memory.mapped()));
  }
  settle_ended();
}

void ServedPools::settle_ended() {
  std::vector<const PoolMemory*> settled;
  {
    const Reading reading{lock_};
    for (const auto& pool : ended_) {
      if (pool->settle_end()) settled.push_back(pool.get());
    }
  }
  if (settled.empty()) return parts_.retired.drop();
  std::vector<std::unique_ptr<PoolMemory>> past;
  {
    const Writing writing{lock_};
    for (auto& pool : ended_) {
      if (std::find(settled.begin(), settled.end(), pool.get()) == settled.end()) continue;
      past.push_back(std::move(pool));
    }
    std::erase(ended_, nullptr);
  }
  for (auto& pool : past) parts_.retired.add(std::move(pool));
}

void ServedPools::program_waited() {
  const Reading reading{lock_};
  for (const auto& [handle, pool] : pools_) pool->program_waited();
}

void ServedPools::current_changed() {
  const Writing writing{lock_};
  changes_.fetch_add(1);
  for (PoolsOfDevice& there : of_devices_) there.current_is_known.store(false);
}

PoolMemory* ServedPools::serve(CUmemoryPool handle) {
  int ordinal = -1;
  {
    const Reading reading{lock_};
    const auto found = pools_.find(handle);
    if (found != pools_.end()) return found->second.get();
    const auto created = created_.find(handle);
    if (created != created_.end()) ordinal = created->second;
  }
  if (ordinal < 0) ordinal = device_of_default_pool(handle);
  return ordinal < 0 ? nullptr : make(handle, ordinal);
}

// -1 if it is no device's default pool.
int ServedPools::device_of_default_pool(CUmemoryPool handle) const {
  int count = 0;
  if (driver_.cuDeviceGetCount(&count) != CUDA_SUCCESS) return -1;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUmemoryPool standard = nullptr;
    if (driver_.cuDeviceGetDefaultMemPool(&standard, ordinal) != CUDA_SUCCESS) continue;
    if (standard == handle) return ordinal;
  }
  return -1;
}

PoolMemory* ServedPools::make(CUmemoryPool handle, int ordinal) {
  DeviceMemory* where = parts_.devices.serve(ordinal);
  if (where == nullptr) return nullptr;
  settle_ended();
  const Writing writing{lock_};
  const auto found = pools_.find(handle);
  if (found != pools_.end()) return found->second.get();
  auto& compactor = of_devices_[static_cast<std::size_t>(ordinal)].compactor;
  if (compactor == nullptr) {
    compactor =
        std::make_unique<DeviceCompactor>(*this, parts_.dependencies, parts_.policy, ordinal);
  }
  const bool may_compact = parts_.settings.compact != Compact::Off;
  auto made = PoolMemory::create(driver_, *where, parts_.dependencies.clock, handle,
                                 may_compact ? compactor.get() : nullptr);
  if (!made.ok()) {
    CUVMM_LOG(Warning, "%s; cuvmm does not serve the pool's memory", made.error().text().c_str());
    created_.erase(handle);
    return nullptr;
  }
  return pools_.emplace(handle, std::move(*made)).first->second.get();
}

Compactor* ServedPools::compactor_of(int ordinal) const {
  const Reading reading{lock_};
  return of_devices_[static_cast<std::size_t>(ordinal)].compactor.get();
}

PoolMemory* ServedPools::serve_current(int ordinal) {
  if (ordinal < 0 || ordinal >= AccessSet::most_devices) return nullptr;
  PoolsOfDevice& there = of_devices_[static_cast<std::size_t>(ordinal)];
  if (there.current_is_known.load(std::memory_order_acquire)) {
    return there.current.load(std::memory_order_acquire);
  }
  CUmemoryPool current = nullptr;
  const std::uint64_t changes = changes_.load();
  if (driver_.cuDeviceGetMemPool(&current, ordinal) != CUDA_SUCCESS) return nullptr;
  PoolMemory* found = serve(current);
  const Writing writing{lock_};
  if (changes != changes_.load()) return found;  // ask again the next time
  there.current.store(found, std::memory_order_release);
  there.current_is_known.store(true, std::memory_order_release);
  return found;
}

void ServedPools::trace_holdings() const {
  const Writing alone{lock_, std::try_to_lock};
  if (!alone.owns_lock()) return;
  for (const auto& [handle, pool] : pools_) pool->trace_holdings();
  for (const auto& pool : ended_) pool->trace_holdings();
}

InvariantViolation ServedPools::violation() const {
  const Reading reading{lock_};
  for (const auto& [handle, pool] : pools_) {
    if (auto violation = pool->violation()) return violation;
  }
  return std::nullopt;
}

}  // namespace cuvmm
