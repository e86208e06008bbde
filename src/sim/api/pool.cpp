// SPDX-License-Identifier: Apache-2.0
// Pools as objects: creation, destruction, attributes and access.
#include "sim/pool.hpp"

#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/device.hpp"
#include "sim/entry.hpp"
#include "sim/pool_sharing.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

std::shared_ptr<Pool> find_pool(CUmemoryPool handle) {
  return Process::get().pools.find(handle);
}

// A pool for the program to query or change, or the error for the call. Even queries are refused
// while other streams are captured (measured).
struct AskedPool {
  std::shared_ptr<Pool> pool;
  CUresult answer = CUDA_SUCCESS;
};
AskedPool asked_pool(CUmemoryPool handle) {
  auto pool = find_pool(handle);
  if (pool == nullptr) return {nullptr, CUDA_ERROR_INVALID_VALUE};
  const CUresult refused = refuse_unsafe_call();
  return {std::move(pool), refused};
}
// Like asked_pool(), but refuses pools imported from another process.
AskedPool asked_own_pool(CUmemoryPool handle) {
  AskedPool asked = asked_pool(handle);
  if (asked.answer == CUDA_SUCCESS && asked.pool->is_imported()) {
    asked.answer = CUDA_ERROR_INVALID_VALUE;
  }
  return asked;
}

CUresult tell(CUmemoryPool* out, const std::shared_ptr<Pool>& pool) {
  *out = pool->handle();
  return CUDA_SUCCESS;
}

CUresult set_current(Device& device, CUmemoryPool handle) {
  const AskedPool asked = asked_own_pool(handle);
  if (asked.answer != CUDA_SUCCESS) return asked.answer;
  if (asked.pool->properties().device != &device) return CUDA_ERROR_INVALID_VALUE;
  const Holding holding{Process::get().lock};
  device.current_pool = asked.pool;
  return CUDA_SUCCESS;
}

// The device whose pools a location and type refer to, or an error: the host and managed memory
// have no pools here.
CUresult device_of(const CUmemLocation* location, CUmemAllocationType type, const char* symbol,
                   Device** device) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) return lacking(symbol, "for managed memory");
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      *device = Process::get().device(location->id);
      return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return lacking(symbol, "for the host's memory");
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult check_handle_types(CUmemAllocationHandleType types) {
  constexpr unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_WIN32 |
                             CU_MEM_HANDLE_TYPE_WIN32_KMT | CU_MEM_HANDLE_TYPE_FABRIC;
  if ((unsigned{types} & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool only_files =
      (unsigned{types} & ~unsigned{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) == 0;
  return only_files ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult read_properties(const CUmemPoolProps* given, Pool::Properties* properties) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (given->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED) {
    return lacking("cuMemPoolCreate", "for managed memory");
  }
  if (given->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  switch (given->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      properties->device = Process::get().device(given->location.id);
      if (properties->device == nullptr) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      if (given->location.id != 0) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (given->maxSize != 0) properties->max_size = given->maxSize;
  properties->handle_types = static_cast<unsigned>(given->handleTypes);
  return check_handle_types(given->handleTypes);
}

// Returns -1 for a location that does not exist.
int accessor_of(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    return Process::get().device(location.id) != nullptr ? location.id : -1;
  }
  const bool is_host = location.type == CU_MEM_LOCATION_TYPE_HOST ||
                       location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
                       location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  return is_host ? host_access : -1;
}

// Every refusal as measured.
CUresult check_access(const Pool& pool, const CUmemAccessDesc& wanted) {
  const int who = accessor_of(wanted.location);
  if (who < 0) return CUDA_ERROR_INVALID_DEVICE;
  const Device* home = pool.properties().device;
  if (who == host_access && home != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (home != nullptr && who != home->ordinal() && settings().peers == Switch::Off) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  switch (wanted.flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      return CUDA_SUCCESS;
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_MEM_ACCESS_FLAGS_PROT_NONE: {
      const bool is_home = home != nullptr ? who == home->ordinal() : who == host_access;
      return is_home ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUVMM_SIM(cuDeviceGetDefaultMemPool)(CUmemoryPool* pool, CUdevice ordinal) {
  Device* device = Process::get().device(ordinal);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : tell(pool, default_pool_of(*device));
}

CUVMM_SIM(cuDeviceGetMemPool)(CUmemoryPool* pool, CUdevice ordinal) {
  Device* device = Process::get().device(ordinal);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : tell(pool, current_pool_of(*device));
}

CUVMM_SIM(cuDeviceSetMemPool)(CUdevice ordinal, CUmemoryPool pool) {
  Device* device = Process::get().device(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : set_current(*device, pool);
}

CUVMM_SIM(cuMemGetDefaultMemPool)
(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  const CUresult answer = device_of(location, type, "cuMemGetDefaultMemPool", &device);
  return device == nullptr ? answer : tell(pool, default_pool_of(*device));
}

CUVMM_SIM(cuMemGetMemPool)(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  const CUresult answer = device_of(location, type, "cuMemGetMemPool", &device);
  return device == nullptr ? answer : tell(pool, current_pool_of(*device));
}

CUVMM_SIM(cuMemSetMemPool)(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  Device* device = nullptr;
  const CUresult answer = device_of(location, type, "cuMemSetMemPool", &device);
  return device == nullptr ? answer : set_current(*device, pool);
}

CUVMM_SIM(cuMemPoolCreate)(CUmemoryPool* pool, const CUmemPoolProps* given) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Pool::Properties properties;
  if (const CUresult answer = read_properties(given, &properties); answer != CUDA_SUCCESS) {
    return answer;
  }
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  return tell(pool, create_pool(properties));
}

CUVMM_SIM(cuMemPoolDestroy)(CUmemoryPool pool) {
  const AskedPool asked = asked_pool(pool);
  return asked.answer != CUDA_SUCCESS ? asked.answer : destroy_pool(pool);
}

CUVMM_SIM(cuMemPoolTrimTo)(CUmemoryPool pool, size_t kept) {
  const AskedPool asked = asked_own_pool(pool);
  if (asked.answer != CUDA_SUCCESS) return asked.answer;
  asked.pool->trim_to(kept);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemPoolGetAttribute)(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const AskedPool asked = asked_own_pool(pool);
  return asked.answer != CUDA_SUCCESS ? asked.answer : asked.pool->get_attribute(attribute, value);
}

CUVMM_SIM(cuMemPoolSetAttribute)(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const AskedPool asked = asked_own_pool(pool);
  return asked.answer != CUDA_SUCCESS ? asked.answer : asked.pool->set_attribute(attribute, value);
}

CUVMM_SIM(cuMemPoolGetAccess)
(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const AskedPool asked = asked_pool(pool);
  if (asked.answer != CUDA_SUCCESS) return asked.answer;
  const int who = accessor_of(*location);
  if (who < 0) return CUDA_ERROR_INVALID_VALUE;
  *flags = asked.pool->access_of(who) == Access::None ? CU_MEM_ACCESS_FLAGS_PROT_NONE
                                                      : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemPoolSetAccess)(CUmemoryPool pool, const CUmemAccessDesc* wanted, size_t count) {
  if (wanted == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const AskedPool asked = asked_pool(pool);
  if (asked.answer != CUDA_SUCCESS) return asked.answer;
  for (size_t i = 0; i < count; ++i) {
    const CUresult answer = check_access(*asked.pool, wanted[i]);
    if (answer != CUDA_SUCCESS) return answer;
  }
  for (size_t i = 0; i < count; ++i) {
    const bool none = wanted[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
    const CUresult answer = asked.pool->set_access(accessor_of(wanted[i].location),
                                                   none ? Access::None : Access::ReadWrite);
    if (answer != CUDA_SUCCESS) return answer;
  }
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
