// SPDX-License-Identifier: Apache-2.0
#include "sim/module.hpp"
#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/entry.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

CUresult load(const char* symbol, CUmodule* module, const void* image) {
  CUVMM_SIM_CONTEXT(context);
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<const Ptx> ptx;
  if (const CUresult read = read_image(symbol, image, ptx); read != CUDA_SUCCESS) return read;
  std::shared_ptr<Module> loaded;
  const CUresult answer = Module::load(context, ptx, nullptr, loaded);
  if (answer == CUDA_SUCCESS) *module = Process::get().modules.add(std::move(loaded));
  return answer;
}

std::shared_ptr<Module> find_module(CUmodule module) {
  return Process::get().modules.find(module);
}

}  // namespace

CUVMM_SIM(cuModuleLoadData)(CUmodule* module, const void* image) {
  return load("cuModuleLoadData", module, image);
}

// The compiler options are ignored, since nothing is compiled.
CUVMM_SIM(cuModuleLoadDataEx)
(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return load("cuModuleLoadDataEx", module, image);
}

CUVMM_SIM(cuModuleLoadFatBinary)(CUmodule* module, const void* image) {
  return load("cuModuleLoadFatBinary", module, image);
}

CUVMM_SIM(cuModuleLoad)(CUmodule* module, const char* path) {
  CUVMM_SIM_CONTEXT(context);
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<const Ptx> ptx;
  const CUresult read = read_image_file("cuModuleLoad", path, ptx);
  if (read != CUDA_SUCCESS) return read;
  std::shared_ptr<Module> loaded;
  const CUresult answer = Module::load(context, ptx, nullptr, loaded);
  if (answer == CUDA_SUCCESS) *module = Process::get().modules.add(std::move(loaded));
  return answer;
}

CUVMM_SIM(cuModuleUnload)(CUmodule handle) {
  CUVMM_SIM_CONTEXT(context);
  const auto module = find_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module->is_of_library()) return CUDA_ERROR_NOT_PERMITTED;  // assumed
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  // Its code and variables may still be in use.
  if (const auto owner = module->context.lock()) owner->wait_for_all_work();
  Process::get().modules.remove(handle);
  return context->sticky_error();
}

CUVMM_SIM(cuModuleGetFunction)(CUfunction* function, CUmodule handle, const char* name) {
  CUVMM_SIM_CONTEXT(context);
  const auto module = find_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
  const auto found = module->find_function(name);
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  *function = found->handle();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuModuleGetFunctionCount)(unsigned* count, CUmodule handle) {
  const auto module = find_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->functions().size());
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuModuleEnumerateFunctions)(CUfunction* functions, unsigned count, CUmodule handle) {
  const auto module = find_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& all = module->functions();
  for (unsigned i = 0; i < count && i < all.size(); ++i) functions[i] = all[i]->handle();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuModuleGetGlobal_v2)
(CUdeviceptr* address, size_t* size, CUmodule handle, const char* name) {
  CUVMM_SIM_CONTEXT(context);
  const auto module = find_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr || (address == nullptr && size == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const ModuleVariable* variable = module->find_variable(name);
  if (variable == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (address != nullptr) *address = variable->address;
  if (size != nullptr) *size = variable->size;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuModuleGetLoadingMode)(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;  // the driver's default since 12.2
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
