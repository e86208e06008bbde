// SPDX-License-Identifier: Apache-2.0
#include "sim/managed_variables.hpp"

#include <cstring>

#include "sim/address_space.hpp"
#include "sim/host_memory.hpp"
#include "sim/managed_advice.hpp"
#include "sim/process.hpp"
#include "sim/ptx.hpp"

namespace cuvmm::sim {

std::shared_ptr<ManagedVariables> ManagedVariables::place(const Ptx& ptx) {
  std::shared_ptr<ManagedVariables> placed{new ManagedVariables};
  for (const PtxVariable& variable : ptx.variables) {
    if (!variable.managed) continue;
    const CUdeviceptr address = take_host_memory(variable.size);
    if (address == 0) return nullptr;
    placed->variables_.push_back(
        {.name = variable.name, .address = address, .size = variable.size});
    ManagedAdvices::get().add(address, variable.size);
    Process::get().space().add({.address = address,
                                .size = variable.size,
                                .kind = AllocationKind::Managed,
                                .sync_memops = true,
                                .flags = CU_MEM_ATTACH_GLOBAL});
    if (!variable.initial.empty()) {
      std::memcpy(reinterpret_cast<void*>(address), variable.initial.data(),
                  variable.initial.size());
    }
  }
  return placed;
}

ManagedVariables::~ManagedVariables() {
  for (const Variable& variable : variables_) {
    Process::get().space().take(variable.address);
    ManagedAdvices::get().remove(variable.address);
    give_host_memory_back(variable.address, variable.size);
  }
}

const ManagedVariables::Variable* ManagedVariables::find(std::string_view name) const {
  for (const Variable& variable : variables_) {
    if (variable.name == name) return &variable;
  }
  return nullptr;
}

}  // namespace cuvmm::sim
