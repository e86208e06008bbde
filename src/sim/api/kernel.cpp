// SPDX-License-Identifier: Apache-2.0
#include "sim/bodies.hpp"
#include "sim/context.hpp"
#include "sim/library.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

bool is_device(CUdevice device) {
  return Process::get().device(device) != nullptr;
}

// The kernel's existing functions in the contexts of this device.
std::vector<std::shared_ptr<Function>> functions_on(const Kernel& kernel, CUdevice device) {
  std::vector<std::shared_ptr<Function>> found;
  const auto library = kernel.library.lock();
  if (library == nullptr) return found;
  for (const auto& module : library->modules()) {
    const auto context = module->context.lock();
    if (context == nullptr || context->device().ordinal() != device) continue;
    found.push_back(module->find_function(kernel.entry.name));
  }
  return found;
}

}  // namespace

CUVMM_SIM(cuKernelGetFunction)(CUfunction* function, CUkernel handle) {
  CUVMM_SIM_CONTEXT(context);
  const auto kernel = kernels().find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Function> found;
  const CUresult loaded = kernel->function_in(context, found);
  if (loaded == CUDA_SUCCESS) *function = found->handle();
  return loaded;
}

CUVMM_SIM(cuKernelGetLibrary)(CUlibrary* library, CUkernel handle) {
  const auto kernel = kernels().find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto home = kernel->library.lock();
  if (library == nullptr || home == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = home->handle();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuKernelGetAttribute)
(int* value, CUfunction_attribute attribute, CUkernel handle, CUdevice device) {
  const auto kernel = kernels().find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto functions = functions_on(*kernel, device);
  return functions.empty() ? kernel->attributes.get(attribute, value)
                           : functions.front()->attributes.get(attribute, value);
}

CUVMM_SIM(cuKernelSetAttribute)
(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device) {
  const auto kernel = kernels().find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const CUresult answer = kernel->attributes.set(attribute, value);
  if (answer != CUDA_SUCCESS) return answer;
  for (const auto& function : functions_on(*kernel, device)) {
    function->attributes.set(attribute, value);
  }
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuKernelSetCacheConfig)(CUkernel handle, CUfunc_cache config, CUdevice device) {
  if (kernels().find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUVMM_SIM(cuKernelGetName)(const char** name, CUkernel handle) {
  const auto kernel = kernels().find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->entry.name.c_str();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuKernelGetParamInfo)(CUkernel handle, size_t index, size_t* offset, size_t* size) {
  const auto kernel = kernels().find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto& parameters = kernel->entry.parameters;
  if (index >= parameters.size() || offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *offset = parameters[index].offset;
  if (size != nullptr) *size = parameters[index].size;
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
