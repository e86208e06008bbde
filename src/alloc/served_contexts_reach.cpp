// SPDX-License-Identifier: Apache-2.0
// ServedContexts: copies that cross devices without peer access. Every copy between contexts asks,
// so this is built for speed.
#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "alloc/pool_memory.hpp"
#include "alloc/served_contexts.hpp"
#include "base/log.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {

void ServedContexts::let_reach(const AllocationFacts& held, const AccessSet& devices) {
  const ContextMemory* const owner = held.context_memory();
  if (owner == nullptr) return;
  const AccessSet before = owner->access();
  if ((before | devices) == before) return;
  const Writing writing{lock_};
  const auto found = contexts_.find(owner->context());
  if (found == contexts_.end() || found->second->memory.get() != owner) return;
  for (int device = 0; device < AccessSet::most_devices; ++device) {
    if (devices.of_device(device) == Access::None) continue;
    if (before.of_device(device) != Access::None) continue;
    int can = 0;
    if (driver_.cuDeviceCanAccessPeer(&can, device, held.device) != CUDA_SUCCESS) continue;
    if (can == 0) continue;
    peer_access_.push_back({.by = nullptr, .of = owner->context(), .device = device});
    const auto given = found->second->memory->set_access(access_to(owner->context(), held.device));
    if (given.ok()) continue;
    peer_access_.pop_back();
    CUVMM_LOG(Warning, "%s", given.error().text().c_str());
  }
}

bool ServedContexts::may_use(const AllocationFacts& held) const {
  if (!has_several() || held.importer() != nullptr) return true;
  const int device = current_device(driver_);
  const bool is_unknown = device < 0;  // the driver itself then answers the call
  if (is_unknown || device == held.device) return true;
  if (const PoolMemory* const pool = held.pool_memory()) {
    return pool->access().of_device(device) != Access::None;
  }
  const ContextMemory* const owner = held.context_memory();
  const Reading reading{lock_};
  return std::any_of(peer_access_.begin(), peer_access_.end(), [&](const PeerAccess& access) {
    return access.of == owner->context() && access.by != nullptr && access.device == device;
  });
}

}  // namespace cuvmm
