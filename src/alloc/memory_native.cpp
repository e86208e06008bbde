// SPDX-License-Identifier: Apache-2.0
// Memory: what the program takes from the driver natively. It counts against the limit; without a
// limit it is not tracked.
#include "alloc/memory.hpp"

namespace cuvmm {

int Memory::current_device() const {
  CUdevice ordinal = -1;
  return dependencies_.driver.cuCtxGetDevice_v2000(&ordinal) == CUDA_SUCCESS ? ordinal : -1;
}

void Memory::took_natively(const NativeMemory::Name& name, Size size) {
  if (counts_native_memory()) took_natively(name, size, current_device());
}

// The driver has granted the memory already, so our cached chunks make way for it.
void Memory::took_natively(const NativeMemory::Name& name, Size size, int ordinal) {
  if (!counts_native_memory()) return;
  DeviceMemory* const there = device(ordinal);
  if (there == nullptr) return;
  gives_back_natively(name);
  native_.took(name, {ordinal, size});
  LeasedBudget& budget = there->budget();
  budget.note_native(size);
  const Size held = budget.committed_bytes() + budget.native_bytes();
  if (held > budget.limit()) there->store().reclaim(there->location(), held - budget.limit());
}

std::optional<NativeMemory::Taken> Memory::gives_back_natively(const NativeMemory::Name& name) {
  if (!counts_native_memory()) return std::nullopt;
  const auto taken = native_.gave_back(name);
  if (taken) device(taken->device)->budget().forget_native(taken->size);
  return taken;
}

}  // namespace cuvmm
