// SPDX-License-Identifier: Apache-2.0
#include "alloc/native_memory.hpp"

namespace cuvmm {

// If the name is already known, its memory has ended without our noticing.
void NativeMemory::took(const Name& name, const Taken& taken) {
  const Holding holding{lock_};
  taken_[name] = taken;
  count_.store(taken_.size(), std::memory_order_release);
}

std::optional<NativeMemory::Taken> NativeMemory::gave_back(const Name& name) {
  if (count_.load(std::memory_order_acquire) == 0) return std::nullopt;
  const Holding holding{lock_};
  const auto found = taken_.find(name);
  if (found == taken_.end()) return std::nullopt;
  const Taken taken = found->second;
  taken_.erase(found);
  count_.store(taken_.size(), std::memory_order_release);
  return taken;
}

}  // namespace cuvmm
