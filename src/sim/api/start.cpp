// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "sim/bodies.hpp"
#include "sim/entry.hpp"
#include "sim/errors.hpp"
#include "sim/process.hpp"
#include "sim/rows.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

struct Found {
  void* function = nullptr;
  bool name_known = false;
};

// The newest signature of the name that both the program and this driver know.
Found find_entrance(const char* name, int version, bool per_thread) {
  Found found;
  for (std::size_t i = 0; i < entrance_count(); ++i) {
    const Entrance& entrance = entrances()[i];
    if (std::strcmp(entrance.name, name) != 0 || entrance.since > settings().driver) continue;
    found.name_known = true;
    if (entrance.since > version) continue;
    found.function =
        per_thread && entrance.per_thread != nullptr ? entrance.per_thread : entrance.legacy;
  }
  return found;
}

CUresult get_address(const char* symbol, void** function, int version, cuuint64_t flags,
                     CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || *symbol == '\0' || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  if (version > settings().driver) return CUDA_ERROR_INVALID_VALUE;
  const Found found =
      find_entrance(symbol, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  *function = found.function;
  if (status != nullptr) {
    *status = found.function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : found.name_known        ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                        : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return found.function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CUVMM_SIM(cuInit)(unsigned flags) {
  if (Process::get().is_forked_child()) return CUDA_ERROR_NOT_INITIALIZED;
  return flags == 0 ? Process::get().start() : CUDA_ERROR_INVALID_VALUE;
}

CUVMM_SIM(cuDriverGetVersion)(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = settings().driver;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGetErrorName)(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = name_of(error);
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUVMM_SIM(cuGetErrorString)(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = text_of(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUVMM_SIM(cuGetProcAddress)
(const char* symbol, void** function, int version, cuuint64_t flags) {
  return get_address(symbol, function, version, flags, nullptr);
}

CUVMM_SIM(cuGetProcAddress_v2)
(const char* symbol, void** function, int version, cuuint64_t flags,
 CUdriverProcAddressQueryResult* status) {
  return get_address(symbol, function, version, flags, status);
}

CUVMM_SIM(cuGetExportTable)(const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace cuvmm::sim
