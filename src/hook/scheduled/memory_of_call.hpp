// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/engine.hpp"

namespace cuvmm::hook {

// Where the memory of a copy or set lies, as far as that tells whether it can be done later.
enum class CopyMemory : std::uint8_t {
  OnDevice,   // of one device, all of it inside of one allocation
  Pinned,     // host memory that the driver knows
  Pageable,   // host memory that it does not know
  Elsewhere,  // managed, told to be waited for, or not as it should be: the driver is to decide
};
struct MemoryOfCall {
  CopyMemory kind = CopyMemory::Elsewhere;
  int device = -1;
};
enum class Touch : std::uint8_t { Read, Write };
MemoryOfCall look_up(Engine& engine, CUdeviceptr address, Size size, Touch how);
inline MemoryOfCall look_up(Engine& engine, const void* host, Size size, Touch how) {
  return look_up(engine, reinterpret_cast<CUdeviceptr>(host), size, how);
}

// Copies pageable memory; false where it cannot be read. Of an address that the call says to be of
// the host, nothing else is to be expected; another one may be of no memory yet, as that of a graph
// that is queued.
bool stage(void* to, const void* from, Size size);
bool stage(void* to, CUdeviceptr from, Size size);

}  // namespace cuvmm::hook
