// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "sim/address_space.hpp"

namespace cuvmm::sim {

class Context;

// Memory of the host that devices reach at the same address: page-locked and managed. 0 where the
// system has none to give.
CUdeviceptr take_host_memory(Size size);
void give_host_memory_back(CUdeviceptr address, Size size);

// The managed allocation that holds all of these bytes.
std::optional<Allocation> managed_allocation(CUdeviceptr address, Size size);

// A context's end takes along what it allocated and registered on the host.
void free_host_memory_of(const std::shared_ptr<Context>& context);

}  // namespace cuvmm::sim
