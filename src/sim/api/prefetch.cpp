// SPDX-License-Identifier: Apache-2.0
// Calls that migrate managed memory on a card. Here it always resides on the host, so these calls
// check their arguments, run in stream order, and store the state that can be queried. Answers
// measured on an H200.
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/host_memory.hpp"
#include "sim/managed_advice.hpp"
#include "sim/process.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {
namespace {

constexpr CUmemLocation on_device(int ordinal) {
  return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal};
}
constexpr CUmemLocation on_host = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = CU_DEVICE_CPU};

// The first version of the signatures names the host as a device. assumed: same answers as newer
// ones
CUmemLocation location_of(CUdevice device) {
  return device == CU_DEVICE_CPU ? on_host : on_device(device);
}

bool is_device(int ordinal) {
  return Process::get().device(ordinal) != nullptr;
}

bool is_host_node(int node) {
  char name[64];
  std::snprintf(name, sizeof name, "/sys/devices/system/node/node%d", node);
  return node == 0 || (node > 0 && access(name, F_OK) == 0);
}

CUresult check_prefetch_location(CUmemLocation* location) {
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return is_device(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
      location->id = CU_DEVICE_CPU;
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return is_host_node(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      *location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

struct Stretch {
  CUdeviceptr address;
  Size size;
  CUmemLocation location = ManagedAdvice::nowhere;
};

CUresult check_stretch(const Stretch& stretch) {
  if (stretch.size == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool managed = managed_allocation(stretch.address, stretch.size).has_value();
  return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void remember_prefetch(const Stretch& stretch) {
  const auto allocation = managed_allocation(stretch.address, stretch.size);
  if (!allocation.has_value()) return;
  ManagedAdvices::get().change(
      allocation->address, stretch.address, stretch.size,
      [&](ManagedAdvice& advice) { advice.prefetched_to = stretch.location; });
}

// There is no work to do, but the call keeps its place in the stream.
CUresult give_order(const std::shared_ptr<Stream>& stream) {
  return submit(stream, Operation{});
}

CUresult prefetch(Stretch stretch, unsigned flags, CUstream named) {
  CUVMM_SIM_CONTEXT(context);
  const auto stream = find_stream(context, named);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult answer = check_prefetch_location(&stretch.location);
  if (answer == CUDA_SUCCESS) answer = check_stretch(stretch);
  if (answer == CUDA_SUCCESS) answer = refuse_captured_stream(*stream);
  if (answer == CUDA_SUCCESS) answer = give_order(stream);
  if (answer == CUDA_SUCCESS) remember_prefetch(stretch);
  return answer;
}

enum class Prefetches : std::uint8_t { No, Yes };

struct Batch {
  CUdeviceptr* addresses;
  size_t* sizes;
  size_t count;
  CUmemLocation* locations;
  size_t* first_stretches;
  size_t location_count;
};

// Reads the ranges of a batch, each with its location.
CUresult read_batch(const Batch& batch, std::vector<Stretch>* stretches) {
  if (batch.addresses == nullptr || batch.sizes == nullptr || batch.count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < batch.count; ++i) {
    stretches->push_back({.address = batch.addresses[i], .size = batch.sizes[i]});
    if (const CUresult answer = check_stretch(stretches->back()); answer != CUDA_SUCCESS) {
      return answer;
    }
  }
  return CUDA_SUCCESS;
}

CUresult read_locations(const Batch& batch, std::vector<Stretch>* stretches) {
  if (batch.locations == nullptr || batch.first_stretches == nullptr || batch.location_count == 0 ||
      batch.location_count > batch.count || batch.first_stretches[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t group = 0; group < batch.location_count; ++group) {
    const bool is_last = group + 1 == batch.location_count;
    const size_t first = batch.first_stretches[group];
    const size_t end = is_last ? batch.count : batch.first_stretches[group + 1];
    if (first >= end || end > batch.count) return CUDA_ERROR_INVALID_VALUE;
    CUmemLocation location = batch.locations[group];
    const CUresult answer = check_prefetch_location(&location);
    if (answer != CUDA_SUCCESS) return answer;
    for (size_t i = first; i < end; ++i) (*stretches)[i].location = location;
  }
  return CUDA_SUCCESS;
}

CUresult call_batch(const Batch& batch, Prefetches prefetches, unsigned long long flags,
                    CUstream named) {
  CUVMM_SIM_CONTEXT(context);
  const auto stream = find_stream(context, named);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != 0 || stream->kind == StreamKind::Legacy) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Stretch> stretches;
  CUresult answer = read_batch(batch, &stretches);
  if (answer == CUDA_SUCCESS && prefetches == Prefetches::Yes)
    answer = read_locations(batch, &stretches);
  if (answer == CUDA_SUCCESS) answer = refuse_captured_stream(*stream);
  if (answer == CUDA_SUCCESS) answer = give_order(stream);
  if (answer != CUDA_SUCCESS || prefetches == Prefetches::No) return answer;
  for (const Stretch& stretch : stretches) remember_prefetch(stretch);
  return CUDA_SUCCESS;
}

// Advice ------------------------------------------------------------------------------------------

bool needs_location(CUmem_advise advice) {
  return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
         advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

bool is_advised_location(CUmem_advise advice, const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return is_device(location.id);
    case CU_MEM_LOCATION_TYPE_HOST:
      return true;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION && is_host_node(location.id);
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    default:
      return false;
  }
}

void apply(CUmem_advise given, const CUmemLocation& location, ManagedAdvice& advice) {
  const bool is_on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const bool is_on_host = location.type == CU_MEM_LOCATION_TYPE_HOST;
  const auto accessor = static_cast<std::size_t>(is_on_device ? location.id : ManagedAdvice::host);
  switch (given) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
      advice.read_mostly = true;
      break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      advice.read_mostly = false;
      break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      // A NUMA node of the host is accepted and changes nothing (measured).
      if (is_on_device) advice.preferred = location;
      if (is_on_host) advice.preferred = on_host;
      break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      advice.preferred = ManagedAdvice::nowhere;
      break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
      advice.accessed_by.set(accessor);
      break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      advice.accessed_by.reset(accessor);
      break;
  }
}

CUresult advise(CUdeviceptr address, size_t size, CUmem_advise given,
                const CUmemLocation& location) {
  CUVMM_SIM_CONTEXT(context);
  if (given < CU_MEM_ADVISE_SET_READ_MOSTLY || given > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (needs_location(given) && !is_advised_location(given, location)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult answer = check_stretch({.address = address, .size = size});
  if (answer != CUDA_SUCCESS) return answer;
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  const auto allocation = managed_allocation(address, size);
  if (!allocation.has_value()) return CUDA_ERROR_INVALID_VALUE;
  ManagedAdvices::get().change(allocation->address, address, size,
                               [&](ManagedAdvice& advice) { apply(given, location, advice); });
  return CUDA_SUCCESS;
}

}  // namespace

CUVMM_SIM(cuMemPrefetchAsync)
(CUdeviceptr address, size_t size, CUdevice device, CUstream stream) {
  return prefetch({.address = address, .size = size, .location = location_of(device)}, 0, stream);
}
CUVMM_SIM(cuMemPrefetchAsync_v2)
(CUdeviceptr address, size_t size, CUmemLocation location, unsigned flags, CUstream stream) {
  return prefetch({.address = address, .size = size, .location = location}, flags, stream);
}
CUVMM_SIM(cuMemPrefetchBatchAsync)
(CUdeviceptr* addresses, size_t* sizes, size_t count, CUmemLocation* locations,
 size_t* first_stretches, size_t location_count, unsigned long long flags, CUstream stream) {
  return call_batch({addresses, sizes, count, locations, first_stretches, location_count},
                    Prefetches::Yes, flags, stream);
}
// Discarded memory keeps its contents here, as reading it yields an indeterminate value anyway.
CUVMM_SIM(cuMemDiscardBatchAsync)
(CUdeviceptr* addresses, size_t* sizes, size_t count, unsigned long long flags, CUstream stream) {
  return call_batch({addresses, sizes, count, nullptr, nullptr, 0}, Prefetches::No, flags, stream);
}
CUVMM_SIM(cuMemDiscardAndPrefetchBatchAsync)
(CUdeviceptr* addresses, size_t* sizes, size_t count, CUmemLocation* locations,
 size_t* first_stretches, size_t location_count, unsigned long long flags, CUstream stream) {
  return call_batch({addresses, sizes, count, locations, first_stretches, location_count},
                    Prefetches::Yes, flags, stream);
}

CUVMM_SIM(cuMemAdvise)(CUdeviceptr address, size_t size, CUmem_advise given, CUdevice device) {
  return advise(address, size, given, location_of(device));
}
CUVMM_SIM(cuMemAdvise_v2)
(CUdeviceptr address, size_t size, CUmem_advise given, CUmemLocation location) {
  return advise(address, size, given, location);
}

// Restricting the memory to some streams matters only on devices that cannot share it with the
// host.
CUVMM_SIM(cuStreamAttachMemAsync)
(CUstream named, CUdeviceptr address, size_t size, unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  const auto stream = find_stream(context, named);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto allocation = managed_allocation(address, 1);
  if (!allocation.has_value() || allocation->address != address) return CUDA_ERROR_INVALID_VALUE;
  if (size != 0 && size != allocation->size) return CUDA_ERROR_INVALID_VALUE;
  const bool is_single = flags == CU_MEM_ATTACH_SINGLE;
  if (flags != 0 && flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && !is_single) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (is_single && stream->kind == StreamKind::Legacy) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = refuse_captured_stream(*stream); refused != CUDA_SUCCESS) {
    return refused;
  }
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  return give_order(stream);
}

}  // namespace cuvmm::sim
