// SPDX-License-Identifier: Apache-2.0
#include "sim/library.hpp"
#include "sim/managed_variables.hpp"

#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/entry.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

bool are_options(const CUlibraryOption* options, unsigned count) {
  if (count != 0 && options == nullptr) return false;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] != CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE &&
        options[i] != CU_LIBRARY_BINARY_IS_PRESERVED) {
      return false;
    }
  }
  return true;
}

CUresult find_variable(CUlibrary handle, const char* name, CUdeviceptr* address, size_t* size) {
  CUVMM_SIM_CONTEXT(context);
  const auto library = libraries().find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr || (address == nullptr && size == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module;
  if (const CUresult loaded = library->module_in(context, module); loaded != CUDA_SUCCESS) {
    return loaded;
  }
  const ModuleVariable* variable = module->find_variable(name);
  if (variable == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (address != nullptr) *address = variable->address;
  if (size != nullptr) *size = variable->size;
  return CUDA_SUCCESS;
}

}  // namespace

CUVMM_SIM(cuLibraryLoadData)
(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption* options,
 void**, unsigned option_count) {
  if (library == nullptr || !are_options(options, option_count)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<const Ptx> ptx;
  const CUresult read = read_image("cuLibraryLoadData", code, ptx);
  if (read == CUDA_SUCCESS) *library = Library::create(std::move(ptx))->handle();
  return read;
}

CUVMM_SIM(cuLibraryLoadFromFile)
(CUlibrary* library, const char* path, CUjit_option*, void**, unsigned, CUlibraryOption* options,
 void**, unsigned option_count) {
  if (library == nullptr || !are_options(options, option_count)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<const Ptx> ptx;
  const CUresult read = read_image_file("cuLibraryLoadFromFile", path, ptx);
  if (read == CUDA_SUCCESS) *library = Library::create(std::move(ptx))->handle();
  return read;
}

CUVMM_SIM(cuLibraryUnload)(CUlibrary handle) {
  if (libraries().find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  const auto library = libraries().remove(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  library->unload();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuLibraryGetKernel)(CUkernel* kernel, CUlibrary handle, const char* name) {
  const auto library = libraries().find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = library->find_kernel(name);
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  *kernel = found->handle();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuLibraryGetKernelCount)(unsigned* count, CUlibrary handle) {
  const auto library = libraries().find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuLibraryEnumerateKernels)(CUkernel* kernels, unsigned count, CUlibrary handle) {
  const auto library = libraries().find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& all = library->kernels;
  for (unsigned i = 0; i < count && i < all.size(); ++i) kernels[i] = all[i]->handle();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuLibraryGetModule)(CUmodule* module, CUlibrary handle) {
  CUVMM_SIM_CONTEXT(context);
  const auto library = libraries().find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> found;
  const CUresult loaded = library->module_in(context, found);
  if (loaded == CUDA_SUCCESS) *module = found->handle();
  return loaded;
}

CUVMM_SIM(cuLibraryGetGlobal)
(CUdeviceptr* address, size_t* size, CUlibrary library, const char* name) {
  return find_variable(library, name, address, size);
}

CUVMM_SIM(cuLibraryGetManaged)
(CUdeviceptr* address, size_t* size, CUlibrary handle, const char* name) {
  const auto library = libraries().find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr || (address == nullptr && size == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const ManagedVariables::Variable* variable = library->ptx->managed->find(name);
  if (variable == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (address != nullptr) *address = variable->address;
  if (size != nullptr) *size = variable->size;
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
