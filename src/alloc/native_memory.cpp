// SPDX-License-Identifier: Apache-2.0
#include "alloc/native_memory.hpp"

#include <vector>

#include "driver/current_context.hpp"

namespace cuvmm {

NativeMemory::NativeMemory(const Driver& driver, const MemorySettings& settings,
                           ServedDevices& devices)
    : driver_(driver),
      devices_(devices),
      counts_(!settings.limit.is_none() ||
              settings.device_limits != decltype(settings.device_limits){}),
      bounds_chunks_(counts_ || settings.lessor != nullptr) {}

void NativeMemory::took(const Name& name, Size size) {
  if (counts_) took(name, {current_device(driver_), size, current_context(driver_)});
}

void NativeMemory::took_from_pool(CUdeviceptr address, Size size) {
  if (!counts_) return;
  CUmemorytype type{};
  int device = -1;
  const bool is_known = driver_.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                      address) == CUDA_SUCCESS &&
                        driver_.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                      address) == CUDA_SUCCESS;
  if (is_known && type == CU_MEMORYTYPE_HOST) return;
  took({Kind::Address, address}, {is_known ? device : current_device(driver_), size});
}

// The driver has granted the memory already, so our cached chunks make way for it. If the name is
// already known, its memory has ended without our noticing.
void NativeMemory::took(const Name& name, const Taken& taken) {
  if (!counts_) return;
  DeviceMemory* const there = devices_.serve(taken.device);
  if (there == nullptr) return;
  gives_back(name);
  remember(name, taken);
  LeasedBudget& budget = there->budget();
  budget.note_native(taken.size);
  if (const Size excess = budget.excess()) there->store().reclaim(there->location(), excess);
}

std::optional<NativeMemory::Taken> NativeMemory::gives_back(const Name& name) {
  if (!counts_) return std::nullopt;
  const auto taken = forget(name);
  if (taken) devices_.serve(taken->device)->budget().forget_native(taken->size);
  return taken;
}

// A new context may have taken a name of the ended one by now. Its memory stays.
void NativeMemory::context_ended(CUcontext context) {
  if (context == nullptr || count_.load(std::memory_order_acquire) == 0) return;
  std::vector<Taken> ended;
  {
    const Holding holding{lock_};
    std::erase_if(taken_, [&](const auto& one) {
      const bool is_of_it = one.second.context == context;
      if (is_of_it) ended.push_back(one.second);
      return is_of_it;
    });
    count_.store(taken_.size(), std::memory_order_release);
  }
  for (const Taken& one : ended) devices_.serve(one.device)->budget().forget_native(one.size);
}

void NativeMemory::belongs_to(CUcontext green, CUcontext primary) {
  if (count_.load(std::memory_order_acquire) == 0) return;
  const Holding holding{lock_};
  for (auto& [name, taken] : taken_) {
    if (taken.context == green) taken.context = primary;
  }
}

void NativeMemory::remember(const Name& name, const Taken& taken) {
  const Holding holding{lock_};
  taken_[name] = taken;
  count_.store(taken_.size(), std::memory_order_release);
}

std::optional<NativeMemory::Taken> NativeMemory::forget(const Name& name) {
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
