// SPDX-License-Identifier: Apache-2.0
#include "sim/pool_sharing.hpp"

#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/entry.hpp"
#include "sim/pool.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

bool is_exportable(const Pool& pool) {
  return !pool.is_imported() &&
         (pool.properties().handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
}

// The checks that all four calls make first.
CUresult refuse(const char* symbol) {
  if (!has_backing()) return lacking(symbol, "needs VMM_SIM_BACKING=memory");
  return refuse_unsafe_call();
}

}  // namespace

CUVMM_SIM(cuMemPoolExportToShareableHandle)
(void* handle, CUmemoryPool pool_handle, CUmemAllocationHandleType type, unsigned long long flags) {
  const auto pool = Process::get().pools.find(pool_handle);
  if (handle == nullptr || pool == nullptr || flags != 0 || !is_exportable(*pool) ||
      type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult refused = refuse("cuMemPoolExportToShareableHandle");
  if (refused != CUDA_SUCCESS) return refused;
  const int descriptor = export_pool(pool);
  if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle) = descriptor;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemPoolImportFromShareableHandle)
(CUmemoryPool* pool, void* handle, CUmemAllocationHandleType type, unsigned long long flags) {
  if (pool == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult refused = refuse("cuMemPoolImportFromShareableHandle");
  if (refused != CUDA_SUCCESS) return refused;
  const auto imported = import_pool(static_cast<int>(reinterpret_cast<std::intptr_t>(handle)));
  if (imported == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pool = imported->handle();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuMemPoolExportPointer)(CUmemPoolPtrExportData* data, CUdeviceptr address) {
  const CUresult refused = refuse("cuMemPoolExportPointer");
  if (refused != CUDA_SUCCESS) return refused;
  const auto allocation = Process::get().space().allocation_at(address);
  if (data == nullptr || !allocation.has_value() || allocation->address != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto pool = allocation->pool.lock();
  if (pool == nullptr || !is_exportable(*pool)) return CUDA_ERROR_INVALID_VALUE;
  return export_pointer(pool, *allocation, data);
}

CUVMM_SIM(cuMemPoolImportPointer)
(CUdeviceptr* address, CUmemoryPool pool_handle, CUmemPoolPtrExportData* data) {
  const auto pool = Process::get().pools.find(pool_handle);
  if (address == nullptr || data == nullptr || pool == nullptr || !pool->is_imported()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult refused = refuse("cuMemPoolImportPointer");
  return refused != CUDA_SUCCESS ? refused : import_pointer(pool, *data, address);
}

}  // namespace cuvmm::sim
