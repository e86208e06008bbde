// SPDX-License-Identifier: Apache-2.0
// Memory: everything that a device holds, for eviction and restoring.
#include <mutex>
#include <shared_mutex>

#include "alloc/eviction_set.hpp"
#include "alloc/memory_visits.hpp"

namespace cuvmm {

CUcontext Memory::some_context_on(int ordinal) const {
  {
    const Reading reading{contexts_lock_};
    for (const auto& [handle, served] : contexts_) {
      if (served->memory != nullptr && served->memory->device().ordinal() == ordinal) {
        return handle;
      }
    }
  }
  for (const CUcontext context : dependencies_.clock.table().contexts()) {
    if (device_of(dependencies_.driver, context) == ordinal) return context;
  }
  return nullptr;
}

bool Memory::wait_for_everything(std::uint64_t until) {
  return dependencies_.clock.wait_for_everything(until);
}

std::vector<HeldChunk> Memory::held_on(int ordinal) const {
  std::vector<HeldChunk> held;
  const auto list = [&](const auto& memory) { memory.list_held(held); };
  for_each_context(ordinal, list);
  for_each_pool(ordinal, list);
  return held;
}

void Memory::begin_eviction(int ordinal, EvictionSet& evicted) {
  const auto begin = [&](auto& memory) { memory.begin_eviction(evicted); };
  for_each_context(ordinal, begin);
  for_each_pool(ordinal, begin);
}

}  // namespace cuvmm
