// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "base/lock.hpp"
#include "sim/module.hpp"

namespace cuvmm::sim {

// An entry of a library. It has one function in each context that uses it.
struct Kernel {
  Kernel(const std::shared_ptr<Library>& of, const PtxEntry& what, int ptx_target)
      : library(of), entry(what), attributes(what, ptx_target) {}

  const std::weak_ptr<Library> library;
  const PtxEntry& entry;
  FunctionAttributes attributes;  // initial attributes of its functions in later contexts

  CUkernel handle() const { return reinterpret_cast<CUkernel>(const_cast<Kernel*>(this)); }
  // Returns its function in this context. Loads the library there on first use.
  CUresult function_in(const std::shared_ptr<Context>& context,
                       std::shared_ptr<Function>& function);
};

// PTX that is loaded independently of a context.
struct Library : std::enable_shared_from_this<Library> {
  static std::shared_ptr<Library> create(std::shared_ptr<const Ptx> ptx);

  const std::shared_ptr<const Ptx> ptx;
  std::vector<std::shared_ptr<Kernel>> kernels;

  CUlibrary handle() const { return reinterpret_cast<CUlibrary>(const_cast<Library*>(this)); }
  std::shared_ptr<Kernel> find_kernel(std::string_view name) const;
  CUresult module_in(const std::shared_ptr<Context>& context, std::shared_ptr<Module>& module);
  // Its modules in living contexts.
  std::vector<std::shared_ptr<Module>> modules();
  // Invalidates all its handles.
  void unload();

 private:
  explicit Library(std::shared_ptr<const Ptx> text) : ptx(std::move(text)) {}
  Lock lock_{LockOrder::SimContext};  // guards the members below
  std::vector<std::weak_ptr<Module>> modules_;
};

Registry<Library, CUlibrary>& libraries();
Registry<Kernel, CUkernel>& kernels();

// Finds the function for a launch, by the function's handle or by a kernel's handle cast to it.
CUresult find_function(CUfunction handle, const std::shared_ptr<Context>& context,
                       std::shared_ptr<Function>& function);

}  // namespace cuvmm::sim
