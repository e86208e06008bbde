// SPDX-License-Identifier: Apache-2.0
#include "sim/module.hpp"

#include <algorithm>
#include <cstring>

#include "base/made_once.hpp"
#include "sim/context.hpp"
#include "sim/entry.hpp"
#include "sim/interpreter/compiler.hpp"
#include "sim/managed_variables.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"
#include "sim/views.hpp"

namespace cuvmm::sim {

Registry<Function, CUfunction>& functions() {
  static constinit MadeOnce<Registry<Function, CUfunction>> all;
  return all.get();
}

Function::Function(std::shared_ptr<const Ptx> ptx, const PtxEntry& entry,
                   std::weak_ptr<Module> module)
    : attributes(entry, ptx->target),
      ptx_(std::move(ptx)),
      entry_(entry),
      module_(std::move(module)) {}

std::shared_ptr<const Program> Function::program(std::string& lacking) const {
  const auto home = module();
  const Holding holding{lock_};
  if (program_ == nullptr && lacking_.empty() && home != nullptr) {
    const FindVariable find = [&](std::string_view name) -> std::optional<std::uint64_t> {
      const std::uint64_t address = home->address_of(*ptx_, name);
      return address == 0 ? std::nullopt : std::optional{address};
    };
    auto made = std::make_shared<Program>();
    lacking_ = compile_entry(ptx_->text, name(), find, *made);
    if (lacking_.empty()) program_ = std::move(made);
  }
  lacking = lacking_;
  return program_;
}

CUresult Module::load(const std::shared_ptr<Context>& context,
                      const std::shared_ptr<const Ptx>& ptx,
                      const std::shared_ptr<Library>& library, std::shared_ptr<Module>& module) {
  std::shared_ptr<Module> loaded{new Module{context, library != nullptr}};
  if (const CUresult placed = loaded->place_variables(*ptx); placed != CUDA_SUCCESS) return placed;
  if (const CUresult filled = loaded->fill_in_addresses(*ptx); filled != CUDA_SUCCESS) {
    return filled;
  }
  for (const PtxEntry& entry : ptx->entries) {
    loaded->functions_.push_back(std::make_shared<Function>(ptx, entry, loaded));
    sim::functions().add(loaded->functions_.back());
  }
  module = std::move(loaded);
  return CUDA_SUCCESS;
}

Module::~Module() {
  for (const auto& function : functions_) sim::functions().remove(function->handle());
  AddressSpace& space = Process::get().space();
  for (const ModuleVariable& variable : variables_) {
    if (!variable.managed) space.take(variable.address);
  }
  if (block_ != 0) space.free_block(block_);
}

CUresult Module::place_variables(const Ptx& ptx) {
  const auto owner = context.lock();
  Size total = 0;
  for (const PtxVariable& variable : ptx.variables) {
    if (!variable.managed) total = round_up(total, variable.alignment) + variable.size;
  }
  if (ptx.managed != nullptr) {
    for (const ManagedVariables::Variable& variable : ptx.managed->variables()) {
      variables_.push_back({.name = variable.name,
                            .address = variable.address,
                            .size = variable.size,
                            .managed = true});
    }
  }
  if (total == 0) return CUDA_SUCCESS;
  Device& device = owner->device();
  AddressSpace& space = Process::get().space();
  block_ = space.allocate_block(device, round_up(total, static_cast<Size>(settings().granularity)),
                                owner->accessors());
  if (block_ == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Size offset = 0;
  for (const PtxVariable& variable : ptx.variables) {
    if (variable.managed) continue;
    offset = round_up(offset, variable.alignment);
    const CUdeviceptr address = block_ + offset;
    space.add({.address = address,
               .size = variable.size,
               .kind = AllocationKind::ModuleVariable,
               .device = device.ordinal(),
               .context = owner});
    variables_.push_back({.name = variable.name, .address = address, .size = variable.size});
    if (has_backing() && !variable.initial.empty()) {
      std::memcpy(Views::at(device.ordinal(), address), variable.initial.data(),
                  variable.initial.size());
    }
    offset += variable.size;
  }
  return CUDA_SUCCESS;
}

CUresult Module::fill_in_addresses(const Ptx& ptx) {
  if (!has_backing()) return CUDA_SUCCESS;
  const int device = context.lock()->device().ordinal();
  for (const PtxVariable& variable : ptx.variables) {
    for (const PtxAddress& wanted : variable.addresses) {
      const std::uint64_t found = address_of(ptx, wanted.of);
      if (found == 0) {
        return lacking("cuModuleLoadData", ("cannot find " + wanted.of + ", whose address " +
                                            variable.name + " begins with")
                                               .c_str());
      }
      const std::uint64_t bits = (found + wanted.addend) >> wanted.shift;
      auto* place =
          static_cast<std::byte*>(Views::at(device, find_variable(variable.name)->address));
      std::memcpy(place + wanted.offset, &bits, std::min<Size>(wanted.size, sizeof bits));
    }
  }
  return CUDA_SUCCESS;
}

std::uint64_t Module::address_of(const Ptx& ptx, std::string_view name) const {
  const ModuleVariable* variable = find_variable(name);
  return variable != nullptr ? variable->address : ptx.function_address(name);
}

std::shared_ptr<Function> Module::find_function(std::string_view name) const {
  for (const auto& function : functions_) {
    if (function->name() == name) return function;
  }
  return nullptr;
}

const ModuleVariable* Module::find_variable(std::string_view name) const {
  for (const ModuleVariable& variable : variables_) {
    if (variable.name == name) return &variable;
  }
  return nullptr;
}

}  // namespace cuvmm::sim
