// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "sim/bodies.hpp"
#include "sim/entry.hpp"
#include "sim/errors.hpp"
#include "sim/process.hpp"
#include "sim/rows.hpp"
#include "sim/settings.hpp"
#include "sim/tables/private_table.hpp"

namespace cuvmm::sim {
namespace {

// The CUDA version that introduced per-thread default streams.
constexpr int per_thread_since = 7000;

struct Found {
  void* function = nullptr;
  bool name_known = false;
};

// Finds the newest signature of the name that both the program and this driver know. Measured: with
// the per-thread flag, a name that has a per-thread form is not found for versions that predate
// such forms.
Found find_entrance(const char* name, int version, bool per_thread) {
  Found found;
  bool has_per_thread_form = false;
  for (std::size_t i = 0; i < entrance_count(); ++i) {
    const Entrance& entrance = entrances()[i];
    if (std::strcmp(entrance.name, name) != 0 || entrance.since > settings().driver) continue;
    found.name_known = true;
    has_per_thread_form |= entrance.per_thread != nullptr;
    if (entrance.since > version) continue;
    found.function =
        per_thread && entrance.per_thread != nullptr ? entrance.per_thread : entrance.legacy;
  }
  if (per_thread && has_per_thread_form && version < per_thread_since) found.function = nullptr;
  return found;
}

CUresult check_request(const char* symbol, void* const* function, int version, cuuint64_t flags) {
  // A card's driver crashes if one of the two is missing.
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  return version > settings().driver ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

Found find_requested(const char* symbol, int version, cuuint64_t flags) {
  return find_entrance(symbol, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
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
  if (const CUresult bad = check_request(symbol, function, version, flags); bad != CUDA_SUCCESS) {
    return bad;
  }
  *function = find_requested(symbol, version, flags).function;
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUVMM_SIM(cuGetProcAddress_v2)
(const char* symbol, void** function, int version, cuuint64_t flags,
 CUdriverProcAddressQueryResult* status) {
  if (const CUresult bad = check_request(symbol, function, version, flags); bad != CUDA_SUCCESS) {
    return bad;
  }
  const Found found = find_requested(symbol, version, flags);
  *function = found.function;
  if (status != nullptr) {
    *status = found.function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : found.name_known        ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                        : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return CUDA_SUCCESS;  // measured: unlike the older form, even if nothing was found
}

CUVMM_SIM(cuGetExportTable)(const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // A table under an id that no other driver has. It contains nothing but its size.
  static constexpr std::size_t own_table[1] = {sizeof(std::size_t)};
  static constexpr char own_name[sizeof(CUuuid) + 1] = "cuvmm simulation";
  const bool is_own = std::memcmp(id->bytes, own_name, sizeof(CUuuid)) == 0;
  *table = is_own ? &own_table[0] : find_private_table(*id);
  return *table != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace cuvmm::sim
