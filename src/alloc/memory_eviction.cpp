// SPDX-License-Identifier: Apache-2.0
// Memory: everything that a device holds, for eviction and restoring.
#include "alloc/eviction_set.hpp"
#include "alloc/memory.hpp"

namespace cuvmm {

std::vector<HeldChunk> Memory::held_on(int ordinal) const {
  std::vector<HeldChunk> held;
  const auto list = [&](const auto& memory) { memory.list_held(held); };
  contexts_.for_each(ordinal, list);
  pools_.for_each(ordinal, list);
  return held;
}

void Memory::begin_eviction(int ordinal, EvictionSet& evicted) {
  const auto begin = [&](auto& memory) { memory.begin_eviction(evicted); };
  contexts_.for_each(ordinal, begin);
  pools_.for_each(ordinal, begin);
}

}  // namespace cuvmm
