// SPDX-License-Identifier: Apache-2.0
#include "alloc/pointer_answers.hpp"

#include <cstring>

namespace cuvmm {
namespace {

PointerAnswer wide(std::uint64_t value) {
  return {value, sizeof value};
}
PointerAnswer number(std::uint32_t value) {
  return {value, sizeof value};
}

bool may_be_lent(const AllocationFacts& held) {
  const ContextMemory* const context = held.context_memory();
  return context != nullptr && context->device().exportable() == Export::Yes;
}

// Memory of this process may be resident elsewhere for a time, or have no chunk at all.
std::optional<PointerAnswer> answer_as_device_memory(const Memory& memory,
                                                     const AllocationFacts& held,
                                                     CUdeviceptr address,
                                                     CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return number(CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return number(static_cast<std::uint32_t>(held.device));
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return PointerAnswer{.width = sizeof(CUdeviceptr), .answer = CUDA_ERROR_INVALID_VALUE};
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return number(0);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return number(1);
    // Other devices may or may not reach it. Access for copies alone does not count.
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (!memory.contexts().may_use(held)) {
        return PointerAnswer{.width = sizeof(CUdeviceptr), .answer = CUDA_ERROR_INVALID_VALUE};
      }
      if (!memory.is_of_current_device(held)) return std::nullopt;
      return wide(address);
    // Whichever device is current, and whether or not it may use the memory (measured).
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return number(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    default:
      return std::nullopt;
  }
}

}  // namespace

void PointerAnswer::write(void* data) const {
  std::memcpy(data, &value, width);
}

std::optional<PointerAnswer> pointer_answer(const Memory& memory, const AllocationFacts& held,
                                            CUdeviceptr address, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return wide(held.address);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return wide(held.asked);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return wide(held.buffer_id);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return wide(CU_MEM_HANDLE_TYPE_NONE);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return number(may_be_lent(held) ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return number((held.pins & pin::sync_memops) != 0 ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      const CUcontext context = memory.context_of(held);
      if (context == nullptr) return std::nullopt;
      return wide(reinterpret_cast<std::uint64_t>(context));
    }
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
      const PoolMemory* pool = held.pool_memory();
      if (pool == nullptr) return std::nullopt;
      return wide(reinterpret_cast<std::uint64_t>(pool->handle()));
    }
    default:
      return held.served == Served::Imported
                 ? std::nullopt
                 : answer_as_device_memory(memory, held, address, attribute);
  }
}

std::optional<PointerAnswer> pointer_answer(const ProgramChunks& chunks, CUdeviceptr address,
                                            CUpointer_attribute attribute) {
  const auto asked = chunks.asked_properties_at(address);
  if (!asked) return std::nullopt;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return number(CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return number(static_cast<std::uint32_t>(asked->location.id));
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return wide(static_cast<std::uint64_t>(asked->requestedHandleTypes));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return number(asked->allocFlags.gpuDirectRDMACapable);
    default:
      return std::nullopt;
  }
}

}  // namespace cuvmm
