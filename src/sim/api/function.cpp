// SPDX-License-Identifier: Apache-2.0
// Kernels cast to functions can be launched, but all queries in this file return
// CUDA_ERROR_INVALID_HANDLE for them (measured).
#include "sim/bodies.hpp"
#include "sim/context.hpp"
#include "sim/module.hpp"

namespace cuvmm::sim {

CUVMM_SIM(cuFuncGetAttribute)(int* value, CUfunction_attribute attribute, CUfunction handle) {
  const auto function = functions().find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return function->attributes.get(attribute, value);
}

CUVMM_SIM(cuFuncSetAttribute)(CUfunction handle, CUfunction_attribute attribute, int value) {
  const auto function = functions().find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return function->attributes.set(attribute, value);
}

CUVMM_SIM(cuFuncSetCacheConfig)(CUfunction handle, CUfunc_cache config) {
  if (functions().find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUVMM_SIM(cuFuncSetSharedMemConfig)(CUfunction handle, CUsharedconfig config) {
  if (functions().find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
}

CUVMM_SIM(cuFuncGetName)(const char** name, CUfunction handle) {
  const auto function = functions().find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->name().c_str();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuFuncGetParamInfo)(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  const auto function = functions().find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto& parameters = function->parameters();
  if (index >= parameters.size() || offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *offset = parameters[index].offset;
  if (size != nullptr) *size = parameters[index].size;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuFuncGetModule)(CUmodule* module, CUfunction handle) {
  const auto function = functions().find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto home = function->module();
  if (module == nullptr || home == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = home->handle();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuFuncIsLoaded)(CUfunctionLoadingState* state, CUfunction handle) {
  if (functions().find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuFuncLoad)(CUfunction handle) {
  return functions().find(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
