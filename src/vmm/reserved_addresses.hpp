// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/size.hpp"
#include "driver/cuda.hpp"

namespace cuvmm {

// The addresses that this process holds as Reservations. A program that names some of them in a
// call about mappings of its own is to be refused: to the driver all mappings of a process are one
// program's. Any thread.
namespace reserved_addresses {

void add(CUdeviceptr address, Size size);
// Before the driver has them back, since it may give them to the program at once.
void remove(CUdeviceptr address);
// Whether any of these bytes is reserved by us.
bool intersect(CUdeviceptr address, Size size);

// In the child: its parent's threads may hold the lock.
void forget_after_fork();

}  // namespace reserved_addresses

}  // namespace cuvmm
