// SPDX-License-Identifier: Apache-2.0
#include "hook/scheduled/memory_of_call.hpp"

namespace cuvmm::hook {

MemoryOfCall look_up(Engine& engine, CUdeviceptr address, Size size) {
  if (address == 0) return {};
  if (Serving* serving = engine.serving()) {
    if (const auto held = serving->memory.find(address)) {
      const bool fits = size <= held->granted - (address - held->address);
      return fits ? MemoryOfCall{Lies::OnDevice, held->device} : MemoryOfCall{};
    }
  }
  unsigned type = 0;
  unsigned is_managed = 0;
  int device = -1;
  CUdeviceptr begin = 0;
  std::size_t length = 0;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* answers[] = {&type, &is_managed, &device, &begin, &length};
  if (engine.driver().cuPointerGetAttributes(5, asked, answers, address) != CUDA_SUCCESS) return {};
  if (type == 0) return {Lies::Pageable, -1};
  if (is_managed != 0 || address < begin || size > begin + length - address) return {};
  if (type == CU_MEMORYTYPE_DEVICE) return {Lies::OnDevice, device};
  return type == CU_MEMORYTYPE_HOST ? MemoryOfCall{Lies::Pinned, -1} : MemoryOfCall{};
}

}  // namespace cuvmm::hook
