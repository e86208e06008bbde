// SPDX-License-Identifier: Apache-2.0
// Page-locked and managed memory. All answers measured on an H200 unless marked.
#include "sim/host_memory.hpp"

#include <sys/mman.h>

#include "sim/address_layout.hpp"
#include "sim/blocking.hpp"
#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/device.hpp"
#include "sim/entry.hpp"
#include "sim/managed_advice.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

constexpr unsigned host_alloc_flags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned register_flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

// All page-locked memory is mapped, and is portable unless it is write-combined.
unsigned flags_to_tell(unsigned asked) {
  const bool combined = (asked & CU_MEMHOSTALLOC_WRITECOMBINED) != 0;
  return asked | CU_MEMHOSTALLOC_DEVICEMAP | (combined ? 0 : CU_MEMHOSTALLOC_PORTABLE);
}

CUresult allocate_pinned(void** address, size_t size, unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  if (address == nullptr || (flags & ~host_alloc_flags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  if (size == 0) {
    *address = nullptr;
    return CUDA_SUCCESS;
  }
  const CUdeviceptr taken = take_host_memory(size);
  if (taken == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation allocation;
  allocation.address = taken;
  allocation.size = size;
  allocation.kind = AllocationKind::PinnedHost;
  allocation.device = context->device().ordinal();
  allocation.context = context;
  allocation.flags = flags_to_tell(flags);
  Process::get().space().add(std::move(allocation));
  *address = reinterpret_cast<void*>(taken);
  return CUDA_SUCCESS;
}

// Waits for all work of the allocation's context, which may use the memory, then removes the
// allocation from the address space.
std::optional<Allocation> take_when_unused(const Allocation& known) {
  if (const auto owner = known.context.lock()) owner->wait_for_all_work();
  return Process::get().space().take(known.address);
}

bool is_mapped_by_the_host(CUdeviceptr address, Size size) {
  const CUdeviceptr begin = round_down(address, 4 * KiB);
  const CUdeviceptr end = round_up(address + size, 4 * KiB);
  return end > begin && msync(reinterpret_cast<void*>(begin), end - begin, MS_ASYNC) == 0;
}

CUresult check_registration(CUdeviceptr address, Size size) {
  if (is_device_address(address)) return CUDA_ERROR_INVALID_VALUE;
  const auto overlapping = Process::get().space().allocations_if([&](const Allocation& known) {
    return known.address < address + size && address < known.end();
  });
  for (const Allocation& known : overlapping) {
    if (known.kind != AllocationKind::Registered) return CUDA_ERROR_INVALID_VALUE;
  }
  if (!overlapping.empty()) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  return is_mapped_by_the_host(address, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult register_host(void* bytes, size_t size, unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  const auto address = reinterpret_cast<CUdeviceptr>(bytes);
  if (bytes == nullptr || size == 0 || size > unlimited - address) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & ~register_flags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) {
    return lacking("cuMemHostRegister", "of other devices' memory");
  }
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  const CUresult answer = check_registration(address, size);
  if (answer != CUDA_SUCCESS) return answer;
  Allocation allocation;
  allocation.address = address;
  allocation.size = size;
  allocation.kind = AllocationKind::Registered;
  allocation.device = context->device().ordinal();
  allocation.context = context;
  allocation.flags = flags;
  Process::get().space().add(std::move(allocation));
  return CUDA_SUCCESS;
}

}  // namespace

CUVMM_SIM(cuMemAllocHost_v2)(void** address, size_t size) {
  return allocate_pinned(address, size, 0);
}

CUVMM_SIM(cuMemHostAlloc)(void** address, size_t size, unsigned flags) {
  return allocate_pinned(address, size, flags);
}

CUVMM_SIM(cuMemFreeHost)(void* bytes) {
  CUVMM_SIM_CONTEXT(context);
  if (bytes == nullptr) return CUDA_SUCCESS;
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  const auto address = reinterpret_cast<CUdeviceptr>(bytes);
  const auto known = Process::get().space().allocation_at(address);
  if (!known.has_value() || known->address != address ||
      known->kind != AllocationKind::PinnedHost) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto taken = take_when_unused(*known);
  if (!taken.has_value()) return CUDA_ERROR_INVALID_VALUE;
  give_host_memory_back(taken->address, taken->size);
  return context->sticky_error();
}

CUVMM_SIM(cuMemHostRegister)(void* bytes, size_t size, unsigned flags) {
  return register_host(bytes, size, flags);
}
CUVMM_SIM(cuMemHostRegister_v2)(void* bytes, size_t size, unsigned flags) {
  return register_host(bytes, size, flags);
}

CUVMM_SIM(cuMemHostUnregister)(void* bytes) {
  CUVMM_SIM_CONTEXT(context);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  const auto address = reinterpret_cast<CUdeviceptr>(bytes);
  const auto known = Process::get().space().allocation_at(address);
  if (!known.has_value()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (known->address != address || known->kind != AllocationKind::Registered) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!take_when_unused(*known).has_value()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  return context->sticky_error();
}

CUVMM_SIM(cuMemHostGetDevicePointer_v2)(CUdeviceptr* address, void* bytes, unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto asked = reinterpret_cast<CUdeviceptr>(bytes);
  const auto known = Process::get().space().allocation_at(asked);
  if (!known.has_value() ||
      (known->kind != AllocationKind::PinnedHost && known->kind != AllocationKind::Registered)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *address = asked;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemHostGetFlags)(unsigned* flags, void* bytes) {
  CUVMM_SIM_CONTEXT(context);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto known = Process::get().space().allocation_at(reinterpret_cast<CUdeviceptr>(bytes));
  if (!known.has_value()) return CUDA_ERROR_INVALID_VALUE;
  switch (known->kind) {
    case AllocationKind::PinnedHost:
      *flags = known->flags;
      return CUDA_SUCCESS;
    case AllocationKind::Registered:
      *flags = (known->flags & CU_MEMHOSTREGISTER_PORTABLE) | CU_MEMHOSTALLOC_DEVICEMAP;
      return CUDA_SUCCESS;
    case AllocationKind::Managed:
      *flags = CU_MEMHOSTALLOC_DEVICEMAP;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Managed memory ----------------------------------------------------------------------------------

CUVMM_SIM(cuMemAllocManaged)(CUdeviceptr* address, size_t size, unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  if (address == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  const CUdeviceptr taken = take_host_memory(size);
  if (taken == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  ManagedAdvices::get().add(taken, size);
  Allocation allocation;
  allocation.address = taken;
  allocation.size = size;
  allocation.kind = AllocationKind::Managed;
  allocation.device = context->device().ordinal();
  allocation.context = context;
  allocation.flags = flags;
  allocation.sync_memops = true;
  Process::get().space().add(std::move(allocation));
  *address = taken;
  return CUDA_SUCCESS;
}

CUresult free_managed(const Allocation& known) {
  const auto taken = take_when_unused(known);
  if (!taken.has_value()) return CUDA_ERROR_INVALID_VALUE;
  ManagedAdvices::get().remove(taken->address);
  give_host_memory_back(taken->address, taken->size);
  return CUDA_SUCCESS;
}

// Rows of one length ------------------------------------------------------------------------------

CUVMM_SIM(cuMemAllocPitch_v2)
(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned element_size) {
  constexpr Size pitch_step = 512;
  CUVMM_SIM_CONTEXT(context);
  if (address == nullptr || pitch == nullptr || width == 0 || height == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (element_size != 4 && element_size != 8 && element_size != 16) return CUDA_ERROR_INVALID_VALUE;
  const Size row = round_up(width, pitch_step);
  Size size = 0;
  if (row == 0 || __builtin_mul_overflow(row, height, &size)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  const CUresult answer = allocate_blocking(context, size, address);
  if (answer == CUDA_SUCCESS) *pitch = row;
  return answer;
}

}  // namespace cuvmm::sim
