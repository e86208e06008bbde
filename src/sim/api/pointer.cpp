// SPDX-License-Identifier: Apache-2.0
// Queries about addresses. All answers measured on an H200 unless marked.
#include <cstring>
#include <vector>

#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/dma_buf.hpp"
#include "sim/host_memory.hpp"
#include "sim/managed_advice.hpp"
#include "sim/named_memory.hpp"
#include "sim/pointer_facts.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

bool is_attribute(CUpointer_attribute attribute) {
  return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
         attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

void write_fact(void* data, const PointerFact& fact) {
  std::memcpy(data, &fact.value, fact.width);  // little-endian: the low bytes hold the number
}

// P2P tokens, which a kernel module would resolve. Here they only tell allocations apart. As
// documented, requesting them sets SYNC_MEMOPS.
CUresult give_p2p_tokens(void* data, CUdeviceptr address) {
  AddressSpace& space = Process::get().space();
  std::uint64_t id = 0;
  if (const auto known = space.allocation_at(address)) {
    if (known->kind == AllocationKind::PinnedHost || known->kind == AllocationKind::Registered) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    space.change(known->address, [](Allocation& allocation) { allocation.sync_memops = true; });
    id = known->buffer_id;
  } else {
    const auto mapping = space.mapping_at(address);
    if (!mapping.has_value() || mapping->owner != Owner::Program ||
        mapping->chunk->properties().location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    id = mapping->buffer_id;
  }
  const CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens{.p2pToken = id, .vaSpaceToken = 1};
  std::memcpy(data, &tokens, sizeof tokens);
  return CUDA_SUCCESS;
}

}  // namespace

CUVMM_SIM(cuPointerGetAttribute)(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  if (data == nullptr || !is_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) return give_p2p_tokens(data, address);
  const PointerFact fact = PointerFacts{address}.fact(attribute);
  write_fact(data, fact);
  return fact.answer;
}

CUVMM_SIM(cuPointerGetAttributes)
(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr address) {
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    // assumed: tokens, whose query changes the memory's state, cannot be queried along with others
    if (!is_attribute(attributes[i]) || attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS ||
        data[i] == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  const PointerFacts facts{address};
  for (unsigned i = 0; i < count; ++i) write_fact(data[i], facts.fact_or_default(attributes[i]));
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuPointerSetAttribute)
(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  unsigned on = 0;
  std::memcpy(&on, value, sizeof on);
  AddressSpace& space = Process::get().space();
  const auto known = space.allocation_at(address);
  if (!known.has_value()) {
    const auto mapping = space.mapping_at(address);
    const bool is_chunk = mapping.has_value() && mapping->owner == Owner::Program;
    return is_chunk ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  }
  space.change(known->address, [&](Allocation& allocation) { allocation.sync_memops = on != 0; });
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemGetAddressRange_v2)(CUdeviceptr* begin, size_t* size, CUdeviceptr address) {
  CUVMM_SIM_CONTEXT(context);
  if (begin == nullptr && size == nullptr) return CUDA_SUCCESS;
  const auto range = PointerFacts{address}.address_range();
  if (!range.has_value()) return CUDA_ERROR_NOT_FOUND;
  if (begin != nullptr) *begin = range->first;
  if (size != nullptr) *size = range->second;
  return CUDA_SUCCESS;
}

// dma-buf -----------------------------------------------------------------------------------------

namespace {

// Whether all of the range is memory of the same device, of any kind.
bool is_memory_of_one_device(CUdeviceptr address, Size size) {
  const AddressSpace& space = Process::get().space();
  const Device* first = nullptr;
  for (CUdeviceptr next = address; next < address + size;) {
    const auto mapping = space.mapping_at(next);
    if (!mapping.has_value() || mapping->chunk->device() == nullptr) return false;
    if (first == nullptr) first = mapping->chunk->device();
    if (mapping->chunk->device() != first) return false;
    next = mapping->end();
  }
  return true;
}

}  // namespace

CUVMM_SIM(cuMemGetHandleForAddressRange)
(void* handle, CUdeviceptr address, size_t size, CUmemRangeHandleType type,
 unsigned long long flags) {
  constexpr Size host_step = 4 * KiB;
  CUVMM_SIM_CONTEXT(context);
  if (handle == nullptr || size == 0 || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!is_multiple(address, host_step) || !is_multiple(size, host_step) ||
      size > unlimited - address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags == CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags != 0 || !is_memory_of_one_device(address, size)) return CUDA_ERROR_INVALID_VALUE;
  const int file = new_dma_buf(size);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  std::memcpy(handle, &file, sizeof file);
  return CUDA_SUCCESS;
}

// Managed memory ----------------------------------------------------------------------------------

namespace {

// The location that all of the range has in common, or else `nowhere`.
template <class Member>
CUmemLocation common_location(const std::vector<ManagedAdvice>& advice, Member member) {
  const CUmemLocation first = advice.front().*member;
  for (const ManagedAdvice& piece : advice) {
    const CUmemLocation& other = piece.*member;
    if (other.type != first.type || other.id != first.id) return ManagedAdvice::nowhere;
  }
  return first;
}

// The first version of the signatures knows a single host location.
int as_device(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return location.id;
  return location.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

void write_accessors(void* data, Size size, const std::vector<ManagedAdvice>& advice) {
  auto common = advice.front().accessed_by;
  for (const ManagedAdvice& piece : advice) common &= piece.accessed_by;
  std::vector<int> accessors;
  for (int device = 0; device < most_devices; ++device) {
    if (common[static_cast<std::size_t>(device)]) accessors.push_back(device);
  }
  if (common[ManagedAdvice::host]) accessors.push_back(CU_DEVICE_CPU);
  accessors.resize(size / sizeof(int), CU_DEVICE_INVALID);
  std::memcpy(data, accessors.data(), size);
}

CUresult write_range_attribute(void* data, Size size, CUmem_range_attribute attribute,
                               const std::vector<ManagedAdvice>& advice) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
    if (size == 0 || !is_multiple(size, sizeof(int))) return CUDA_ERROR_INVALID_VALUE;
    write_accessors(data, size, advice);
    return CUDA_SUCCESS;
  }
  if (size != sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
  const CUmemLocation preferred = common_location(advice, &ManagedAdvice::preferred);
  const CUmemLocation prefetched = common_location(advice, &ManagedAdvice::prefetched_to);
  int value = 0;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      value = 1;
      for (const ManagedAdvice& piece : advice) value &= piece.read_mostly ? 1 : 0;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      value = as_device(preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      value = as_device(prefetched);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      value = preferred.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      value = preferred.id;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      value = prefetched.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      value = prefetched.id;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

// Returns nothing if the range is not managed memory.
std::vector<ManagedAdvice> advice_of(CUdeviceptr address, Size size) {
  const auto allocation = managed_allocation(address, size);
  if (size == 0 || !allocation.has_value()) return {};
  return ManagedAdvices::get().of(allocation->address, address, size);
}

}  // namespace

CUVMM_SIM(cuMemRangeGetAttribute)
(void* data, size_t data_size, CUmem_range_attribute attribute, CUdeviceptr address, size_t size) {
  CUVMM_SIM_CONTEXT(context);
  const auto advice = advice_of(address, size);
  if (advice.empty()) return CUDA_ERROR_INVALID_VALUE;
  return write_range_attribute(data, data_size, attribute, advice);
}

CUVMM_SIM(cuMemRangeGetAttributes)
(void** data, size_t* data_sizes, CUmem_range_attribute* attributes, size_t count,
 CUdeviceptr address, size_t size) {
  CUVMM_SIM_CONTEXT(context);
  if (data == nullptr || data_sizes == nullptr || attributes == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto advice = advice_of(address, size);
  if (advice.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUresult answer = write_range_attribute(data[i], data_sizes[i], attributes[i], advice);
    if (answer != CUDA_SUCCESS) return answer;
  }
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
