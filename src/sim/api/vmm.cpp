// SPDX-License-Identifier: Apache-2.0
// Virtual memory management. Refusals as measured on the card.
#include <fcntl.h>
#include <unistd.h>

#include "sim/bodies.hpp"
#include "sim/context.hpp"
#include "sim/cost_model.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

constexpr Size largest_reservation = 64 * TiB;

bool is_granular(Size size) {
  return size != 0 && is_multiple(size, settings().granularity);
}

struct Placement {
  CUresult answer = CUDA_SUCCESS;
  Device* device = nullptr;  // nullptr: the host
};

Placement placement_of(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE: {
      Device* device = Process::get().device(location.id);
      return {device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS, device};
    }
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return {location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, nullptr};
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
    case CU_MEM_LOCATION_TYPE_HOST:
      return {CUDA_SUCCESS, nullptr};
    default:
      return {CUDA_ERROR_INVALID_VALUE, nullptr};
  }
}

CUresult check_properties(const CUmemAllocationProp* properties, Placement* placement) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  constexpr unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_WIN32 |
                             CU_MEM_HANDLE_TYPE_WIN32_KMT | CU_MEM_HANDLE_TYPE_FABRIC;
  const auto types = static_cast<unsigned>(properties->requestedHandleTypes);
  if ((types & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((types & ~unsigned{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *placement = placement_of(properties->location);
  return placement->answer;
}

// The device or host that an access descriptor names; -1 if it does not exist.
int accessor_of(const CUmemLocation& location) {
  const Placement placement = placement_of(location);
  if (placement.answer != CUDA_SUCCESS) return -1;
  return placement.device != nullptr ? placement.device->ordinal() : host_access;
}

std::shared_ptr<Chunk> find_chunk(CUmemGenericAllocationHandle handle) {
  return Process::get().chunks.find(handle);
}

// Adds one hold by the program. The handle stays the same, and must be released once per hold.
CUmemGenericAllocationHandle hold(const std::shared_ptr<Chunk>& chunk) {
  const Holding holding{Process::get().lock};  // the count and the table change together
  auto& chunks = Process::get().chunks;
  if (chunk->handles++ == 0) chunks.add(chunk);
  return chunks.handle_of(chunk.get());
}

}  // namespace

CUVMM_SIM(cuMemGetAllocationGranularity)
(size_t* granularity, const CUmemAllocationProp* properties,
 CUmemAllocationGranularity_flags option) {
  Placement placement;
  if (granularity == nullptr || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult bad = check_properties(properties, &placement); bad != CUDA_SUCCESS)
    return bad;
  *granularity = settings().granularity;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemAddressReserve)
(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
  if (address == nullptr || flags != 0 || !is_granular(size)) return CUDA_ERROR_INVALID_VALUE;
  if (alignment != 0 && !is_power_of_two(alignment)) return CUDA_ERROR_INVALID_VALUE;
  if (size > largest_reservation) return CUDA_ERROR_OUT_OF_MEMORY;
  const Size step = alignment > settings().granularity ? alignment : Size{settings().granularity};
  const CUdeviceptr found = Process::get().space().reserve(size, step, hint, Owner::Program);
  if (found == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = found;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemAddressFree)(CUdeviceptr address, size_t size) {
  return Process::get().space().free_reservation(address, size, Owner::Program);
}

CUVMM_SIM(cuMemCreate)
(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
 unsigned long long flags) {
  Placement placement;
  if (handle == nullptr || flags != 0 || !is_granular(size)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_properties(properties, &placement); bad != CUDA_SUCCESS)
    return bad;
  auto chunk = Chunk::create_reclaiming(placement.device, size, *properties);
  if (chunk == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  cost_of(Row::cuMemCreate, size);
  *handle = hold(chunk);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemRelease)(CUmemGenericAllocationHandle handle) {
  const Holding holding{Process::get().lock};
  const auto chunk = find_chunk(handle);
  if (chunk == nullptr) return CUDA_ERROR_INVALID_VALUE;
  cost_of(Row::cuMemRelease, chunk->size());
  if (--chunk->handles == 0) Process::get().chunks.remove(handle);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemMap)
(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
 unsigned long long flags) {
  auto chunk = find_chunk(handle);
  if (chunk == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_granular(size) || !is_multiple(address, settings().granularity)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (offset != 0 || size != chunk->size()) return CUDA_ERROR_NOT_SUPPORTED;
  cost_of(Row::cuMemMap, size);
  return Process::get().space().map(address, std::move(chunk), Owner::Program);
}

CUVMM_SIM(cuMemUnmap)(CUdeviceptr address, size_t size) {
  return Process::get().space().unmap(address, size, Owner::Program);
}

CUVMM_SIM(cuMemSetAccess)
(CUdeviceptr address, size_t size, const CUmemAccessDesc* descriptors, size_t count) {
  if (descriptors == nullptr || count == 0 || !is_granular(size)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const bool known_flags = descriptors[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                             descriptors[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                             descriptors[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!known_flags) return CUDA_ERROR_INVALID_VALUE;
    if (accessor_of(descriptors[i].location) < 0) return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    const Access access = descriptors[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                              ? Access::ReadWrite
                          : descriptors[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? Access::Read
                                                                                  : Access::None;
    const CUresult answer = Process::get().space().set_access(
        address, size, accessor_of(descriptors[i].location), access, Owner::Program);
    if (answer != CUDA_SUCCESS) return answer;
  }
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemGetAccess)
(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int who = accessor_of(*location);
  if (who < 0) return CUDA_ERROR_INVALID_DEVICE;
  const auto access = Process::get().space().access_of(address, who);
  if (!access.has_value()) return CUDA_ERROR_INVALID_VALUE;
  *flags = *access == Access::ReadWrite ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : *access == Access::Read    ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                        : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemRetainAllocationHandle)(CUmemGenericAllocationHandle* handle, void* address) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto mapping = Process::get().space().mapping_at(reinterpret_cast<CUdeviceptr>(address));
  if (!mapping.has_value() || mapping->owner != Owner::Program) return CUDA_ERROR_INVALID_VALUE;
  *handle = hold(mapping->chunk);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemGetAllocationPropertiesFromHandle)
(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  const auto chunk = find_chunk(handle);
  if (properties == nullptr || chunk == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = chunk->properties();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemExportToShareableHandle)
(void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
 unsigned long long flags) {
  const auto chunk = find_chunk(handle);
  if (shareable == nullptr || chunk == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if ((chunk->properties().requestedHandleTypes & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!has_backing()) return CUDA_ERROR_NOT_SUPPORTED;
  if (!Process::get().space().make_shareable(chunk)) return CUDA_ERROR_OPERATING_SYSTEM;
  const int file = fcntl(chunk->extent().file, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shareable) = file;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemImportFromShareableHandle)
(CUmemGenericAllocationHandle* handle, void* shareable, CUmemAllocationHandleType type) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  auto chunk = Chunk::import(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)));
  if (chunk == nullptr) return CUDA_ERROR_UNKNOWN;
  *handle = hold(chunk);
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
