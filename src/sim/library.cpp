// SPDX-License-Identifier: Apache-2.0
#include "sim/library.hpp"

#include <mutex>

#include "base/made_once.hpp"
#include "sim/context.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {

Registry<Library, CUlibrary>& libraries() {
  static constinit MadeOnce<Registry<Library, CUlibrary>> all;
  return all.get();
}

Registry<Kernel, CUkernel>& kernels() {
  static constinit MadeOnce<Registry<Kernel, CUkernel>> all;
  return all.get();
}

std::shared_ptr<Library> Library::create(std::shared_ptr<const Ptx> ptx) {
  std::shared_ptr<Library> library{new Library{std::move(ptx)}};
  for (const PtxEntry& entry : library->ptx->entries) {
    library->kernels.push_back(std::make_shared<Kernel>(library, entry, library->ptx->target));
    sim::kernels().add(library->kernels.back());
  }
  libraries().add(library);
  return library;
}

std::shared_ptr<Kernel> Library::find_kernel(std::string_view name) const {
  for (const auto& kernel : kernels) {
    if (kernel->entry.name == name) return kernel;
  }
  return nullptr;
}

CUresult Library::module_in(const std::shared_ptr<Context>& context,
                            std::shared_ptr<Module>& module) {
  const Holding holding{lock_};
  std::erase_if(modules_, [](const auto& known) { return known.expired(); });
  for (const auto& known : modules_) {
    auto candidate = known.lock();
    if (candidate != nullptr && candidate->context.lock() == context) {
      module = std::move(candidate);
      return CUDA_SUCCESS;
    }
  }
  const CUresult loaded = Module::load(context, ptx, shared_from_this(), module);
  if (loaded != CUDA_SUCCESS) return loaded;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    module->functions()[i]->attributes.set_like(kernels[i]->attributes);
  }
  Process::get().modules.add(module);
  modules_.push_back(module);
  return CUDA_SUCCESS;
}

std::vector<std::shared_ptr<Module>> Library::modules() {
  const Holding holding{lock_};
  std::vector<std::shared_ptr<Module>> living;
  for (const auto& known : modules_) {
    if (auto module = known.lock()) living.push_back(std::move(module));
  }
  return living;
}

void Library::unload() {
  for (const auto& kernel : kernels) sim::kernels().remove(kernel->handle());
  for (const auto& module : modules()) {
    if (const auto context = module->context.lock()) context->wait_for_all_work();
    Process::get().modules.remove(module->handle());
  }
}

CUresult Kernel::function_in(const std::shared_ptr<Context>& context,
                             std::shared_ptr<Function>& function) {
  const auto home = library.lock();
  if (home == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Module> module;
  const CUresult loaded = home->module_in(context, module);
  if (loaded == CUDA_SUCCESS) function = module->find_function(entry.name);
  return loaded;
}

CUresult find_function(CUfunction handle, const std::shared_ptr<Context>& context,
                       std::shared_ptr<Function>& function) {
  function = functions().find(handle);
  if (function != nullptr) return CUDA_SUCCESS;
  const auto kernel = kernels().find(reinterpret_cast<CUkernel>(handle));
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : kernel->function_in(context, function);
}

}  // namespace cuvmm::sim
