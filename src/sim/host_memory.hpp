// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "sim/address_space.hpp"

namespace cuvmm::sim {

class Context;

// Host memory that devices access at the same address: page-locked and managed. Returns 0 if the
// system has no memory.
CUdeviceptr take_host_memory(Size size);
void give_host_memory_back(CUdeviceptr address, Size size);

// Returns the managed allocation that contains all of these bytes.
std::optional<Allocation> managed_allocation(CUdeviceptr address, Size size);

// Frees and unregisters the host memory of a context that ends.
void free_host_memory_of(const std::shared_ptr<Context>& context);

}  // namespace cuvmm::sim
