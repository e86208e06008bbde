// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/size.hpp"

namespace cuvmm::sim {

// The heap behind malloc and free in kernels. It lies in the host's memory and is as large as a
// card's default. Memory that a kernel does not free stays until the process ends. Thread-safe.
std::uint64_t take_from_device_heap(Size size);   // 0 if the heap is full
bool give_to_device_heap(std::uint64_t address);  // false if not from this heap

}  // namespace cuvmm::sim
