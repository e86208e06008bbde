// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/size.hpp"
#include "driver/cuda.hpp"

namespace cuvmm {

// The addresses of all Reservations in this process. A program that names any of them in a call
// about its own mappings must be refused, because the driver does not distinguish our mappings from
// the program's. Thread-safe.
namespace reserved_addresses {

void add(CUdeviceptr address, Size size);
// Call before the driver gets them back, since it may give them to the program at once.
void remove(CUdeviceptr address);
// Whether any of these bytes is reserved by us.
bool intersect(CUdeviceptr address, Size size);

// Called in the child, where the lock may be held by a thread of the parent.
void forget_after_fork();

}  // namespace reserved_addresses

}  // namespace cuvmm
