// SPDX-License-Identifier: Apache-2.0
// The program's pools. Each handle is a real pool's, so that the driver validates and stores its
// attributes. cuvmm serves the memory, and adds its byte counts to the driver's.
#include <span>
#include <vector>

#include "base/interprocess_memory.hpp"
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

template <Call call>
PoolMemory* ours(const Forward<call>& forward, CUmemoryPool pool) {
  Serving* serving = forward.engine().serving();
  return serving != nullptr ? serving->memory.pools().serve(pool) : nullptr;
}

template <Call call>
CUresult change_current(const Forward<call>& forward, auto... arguments) {
  const CUresult answer = forward(arguments...);
  Serving* serving = forward.engine().serving();
  if (serving != nullptr && answer == CUDA_SUCCESS) serving->memory.pools().current_changed();
  return answer;
}

// Never taken back, since blocks of the pool may outlive it, here and in the other process.
CUresult counted_as_shared(CUresult answer) {
  if (answer == CUDA_SUCCESS) InterprocessMemory::add();
  return answer;
}

Size counted(const PoolMemory& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return pool.reserved();
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return pool.reserved_high();
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return pool.used();
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return pool.used_high();
    default:
      return 0;
  }
}

}  // namespace

CUVMM_HOOK(cuMemPoolCreate, CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const CUresult answer = forward(pool, properties);
  Serving* serving = forward.engine().serving();
  if (serving != nullptr && answer == CUDA_SUCCESS)
    serving->memory.pools().created(*pool, *properties);
  return answer;
}

CUVMM_HOOK(cuMemPoolDestroy, CUmemoryPool pool) {
  Serving* const serving = forward.engine().serving();
  if (serving == nullptr) return forward(pool);
  ServedPools& pools = serving->memory.pools();
  ServedPools::Leaving leaving = pools.about_to_end(pool);
  const CUresult answer = forward(pool);
  if (answer == CUDA_SUCCESS) {
    pools.ended(std::move(leaving));
  } else {
    pools.stayed(std::move(leaving));
  }
  return answer;
}

CUVMM_HOOK(cuMemPoolExportToShareableHandle, void* handle, CUmemoryPool pool,
           CUmemAllocationHandleType type, unsigned long long flags) {
  return counted_as_shared(forward(handle, pool, type, flags));
}
CUVMM_HOOK(cuMemPoolImportFromShareableHandle, CUmemoryPool* pool, void* handle,
           CUmemAllocationHandleType type, unsigned long long flags) {
  return counted_as_shared(forward(pool, handle, type, flags));
}

CUVMM_HOOK(cuDeviceSetMemPool, CUdevice device, CUmemoryPool pool) {
  return change_current(forward, device, pool);
}
CUVMM_HOOK(cuMemSetMemPool, CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  return change_current(forward, location, type, pool);
}

CUVMM_HOOK(cuMemPoolTrimTo, CUmemoryPool pool, size_t keep) {
  const CUresult answer = forward(pool, keep);
  PoolMemory* memory = answer == CUDA_SUCCESS ? ours(forward, pool) : nullptr;
  if (memory != nullptr) memory->trim(keep);
  return answer;
}

CUVMM_HOOK(cuMemPoolGetAttribute, CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const CallBarrier::Pass question{forward.engine().questions()};
  const CUresult answer = forward(pool, attribute, value);
  PoolMemory* memory = answer == CUDA_SUCCESS ? ours(forward, pool) : nullptr;
  if (memory == nullptr) return answer;
  if (const Size more = counted(*memory, attribute)) *static_cast<cuuint64_t*>(value) += more;
  return answer;
}

CUVMM_HOOK(cuMemPoolSetAttribute, CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const CallBarrier::Pass question{forward.engine().questions()};
  const CUresult answer = forward(pool, attribute, value);
  PoolMemory* memory = answer == CUDA_SUCCESS ? ours(forward, pool) : nullptr;
  if (memory == nullptr) return answer;
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    memory->set_threshold(*static_cast<const cuuint64_t*>(value));
  }
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) memory->reset_reserved_high();
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) memory->reset_used_high();
  if (attribute == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES) {
    memory->order().follow_events(*static_cast<const int*>(value) != 0);
  }
  if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC) {
    memory->order().allow_opportunistic(*static_cast<const int*>(value) != 0);
  }
  if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
    memory->order().add_dependencies(*static_cast<const int*>(value) != 0);
  }
  return answer;
}

CUVMM_HOOK(cuMemPoolSetAccess, CUmemoryPool pool, const CUmemAccessDesc* lines, size_t count) {
  const CUresult answer = forward(pool, lines, count);
  PoolMemory* memory = answer == CUDA_SUCCESS ? ours(forward, pool) : nullptr;
  if (memory == nullptr) return answer;
  std::vector<int> devices;
  for (const CUmemAccessDesc& line : std::span{lines, count}) {
    if (line.location.type == CU_MEM_LOCATION_TYPE_DEVICE) devices.push_back(line.location.id);
  }
  const auto given = memory->follow_access(devices);
  return given.ok() ? answer : to_cuda(given.error());
}

}  // namespace cuvmm::hook
