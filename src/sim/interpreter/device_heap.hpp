// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/size.hpp"

namespace cuvmm::sim {

// The heap behind malloc and free in kernels. It is host memory, of the default size of a card's
// heap. Memory that a kernel does not free stays allocated until the process ends. Thread-safe.
std::uint64_t take_from_device_heap(Size size);   // 0 if the heap is full
bool give_to_device_heap(std::uint64_t address);  // false if not from this heap

}  // namespace cuvmm::sim
