// SPDX-License-Identifier: Apache-2.0
#include "sim/named_memory.hpp"

#include "sim/address_layout.hpp"
#include "sim/device.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

MemoryPlace place_of(const Allocation& allocation) {
  switch (allocation.kind) {
    case AllocationKind::Managed:
      return MemoryPlace::Managed;
    case AllocationKind::PinnedHost:
    case AllocationKind::Registered:
      return MemoryPlace::Pinned;
    default:
      return MemoryPlace::Device;
  }
}

MemoryPlace place_of(const Mapping& mapping) {
  return mapping.chunk->properties().location.type == CU_MEM_LOCATION_TYPE_DEVICE
             ? MemoryPlace::Device
             : MemoryPlace::Pinned;
}

// Copies may access the blocking memory of any device; sets, and other kinds of memory, need
// access.
bool needs_access(const Allocation& allocation, Use use) {
  return use == Use::SetTarget || allocation.kind != AllocationKind::Blocking;
}

CUresult name_device_memory(CUdeviceptr address, Size size, int device, Use use,
                            NamedMemory* named) {
  const AddressSpace& space = Process::get().space();
  if (!space.covers(address, size)) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = space.allocation_at(address);
  if (!allocation.has_value() || needs_access(*allocation, use)) {
    const Access access = use == Use::CopySource ? Access::Read : Access::ReadWrite;
    if (!is_granted(address, size, device, access)) return CUDA_ERROR_INVALID_VALUE;
  }
  if (allocation.has_value()) {
    *named = {.place = place_of(*allocation),
              .device = allocation->device,
              .sync_memops = allocation->sync_memops,
              .owner = {}};
    if (allocation->kind == AllocationKind::Blocking) named->owner = allocation->context;
  } else if (const auto mapping = space.mapping_at(address)) {
    const Device* home = mapping->chunk->device();
    *named = {
        .place = place_of(*mapping), .device = home != nullptr ? home->ordinal() : -1, .owner = {}};
  }
  return CUDA_SUCCESS;
}

}  // namespace

bool is_granted(CUdeviceptr address, Size size, int who, Access access) {
  const AddressSpace& space = Process::get().space();
  const CUdeviceptr end = address + size;
  for (CUdeviceptr next = address; next < end;) {
    const auto mapping = space.mapping_at(next);
    if (!mapping.has_value()) return false;
    if (mapping->access[static_cast<std::size_t>(who)] < access) return false;
    next = mapping->end();
  }
  return true;
}

CUresult name_memory(CUdeviceptr address, Size size, int device, Use use, NamedMemory* named) {
  if (address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (is_device_address(address)) return name_device_memory(address, size, device, use, named);
  const auto allocation = Process::get().space().allocation_at(address);
  if (!allocation.has_value()) {
    *named = {.place = MemoryPlace::Pageable, .owner = {}};
    return CUDA_SUCCESS;
  }
  if (size > allocation->end() - address) return CUDA_ERROR_INVALID_VALUE;
  named->place = place_of(*allocation);
  named->sync_memops = allocation->sync_memops;
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
