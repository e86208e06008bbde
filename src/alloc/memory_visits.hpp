// SPDX-License-Identifier: Apache-2.0
// Memory: visits everything that holds memory of a device, under the locks of the lists. Pools that
// the program has ended may still hold some.
#pragma once

#include <shared_mutex>

#include "alloc/memory.hpp"

namespace cuvmm {

template <class Visit>
void Memory::for_each_pool(int ordinal, Visit visit) const {
  const Reading reading{pools_lock_};
  for (const auto& [handle, pool] : pools_) {
    if (pool->device().ordinal() == ordinal) visit(*pool);
  }
  for (const auto& pool : ended_pools_) {
    if (pool->device().ordinal() == ordinal) visit(*pool);
  }
}

}  // namespace cuvmm
