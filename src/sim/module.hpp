// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/lock.hpp"
#include "cuvmm/sim.h"
#include "sim/cuda.hpp"
#include "sim/function_attributes.hpp"
#include "sim/ptx.hpp"
#include "sim/registry.hpp"

namespace cuvmm::sim {

class Context;
class Module;
struct Library;
struct Program;

// An entry of a loaded module. Runs as a host function of the program, or by interpreting its PTX.
class Function {
 public:
  Function(std::shared_ptr<const Ptx> ptx, const PtxEntry& entry, std::weak_ptr<Module> module);

  const std::string& name() const { return entry_.name; }
  const std::vector<PtxParameter>& parameters() const { return entry_.parameters; }
  Size parameter_bytes() const { return entry_.parameter_bytes; }
  std::shared_ptr<Module> module() const { return module_.lock(); }
  CUfunction handle() const { return reinterpret_cast<CUfunction>(const_cast<Function*>(this)); }

  FunctionAttributes attributes;

  // The program for the interpreter, built on the first call. Returns nullptr if the interpreter
  // does not know a construct in the text, and stores the construct in `lacking`.
  std::shared_ptr<const Program> program(std::string& lacking) const;

 private:
  const std::shared_ptr<const Ptx> ptx_;  // keeps entry_ alive
  const PtxEntry& entry_;
  const std::weak_ptr<Module> module_;
  mutable Lock lock_{LockOrder::SimContext};  // guards the members below
  mutable std::shared_ptr<const Program> program_;
  mutable std::string lacking_;
};

struct ModuleVariable {
  std::string name;
  CUdeviceptr address = 0;
  Size size = 0;
  bool managed = false;
};

// PTX loaded into one context: its entries, and its variables in device memory.
class Module : public std::enable_shared_from_this<Module> {
 public:
  static CUresult load(const std::shared_ptr<Context>& context,
                       const std::shared_ptr<const Ptx>& ptx,
                       const std::shared_ptr<Library>& library, std::shared_ptr<Module>& module);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  CUmodule handle() const { return reinterpret_cast<CUmodule>(const_cast<Module*>(this)); }
  const std::vector<std::shared_ptr<Function>>& functions() const { return functions_; }
  std::shared_ptr<Function> find_function(std::string_view name) const;
  const ModuleVariable* find_variable(std::string_view name) const;
  // The address of a variable or function; 0 if there is none of that name.
  std::uint64_t address_of(const Ptx& ptx, std::string_view name) const;
  // Whether it is a library's instance in a context.
  bool is_of_library() const { return of_library_; }

  const std::weak_ptr<Context> context;

 private:
  Module(const std::shared_ptr<Context>& owner, bool of_library)
      : context(owner), of_library_(of_library) {}
  CUresult place_variables(const Ptx& ptx);
  // Writes addresses into the variables that are initialized with them, once all addresses are
  // known.
  CUresult fill_in_addresses(const Ptx& ptx);

  const bool of_library_;
  std::vector<std::shared_ptr<Function>> functions_;
  std::vector<ModuleVariable> variables_;
  CUdeviceptr block_ = 0;  // the allocation that contains the variables
};

// Functions by handle.
Registry<Function, CUfunction>& functions();

// Reads an image that the program passed in. For binary code, returns CUDA_ERROR_NOT_SUPPORTED and
// logs it for `symbol`.
CUresult read_image(const char* symbol, const void* image, std::shared_ptr<const Ptx>& ptx);
CUresult read_image_file(const char* symbol, const char* path, std::shared_ptr<const Ptx>& ptx);

// The host function for this entry: one that was set, or else the function that the program exports
// as cuvmm_sim_kernel_<entry>. Returns nullptr if there is none.
cuvmm_sim_kernel find_host_kernel(const std::string& entry);

}  // namespace cuvmm::sim
