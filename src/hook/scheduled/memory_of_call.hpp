// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/engine.hpp"

namespace cuvmm::hook {

// The kind of memory that a copy or set names, which decides whether the call can be deferred.
enum class CopyMemory : std::uint8_t {
  OnDevice,   // on one device, within one allocation
  Spilled,    // the same, but at least partly in host memory
  Pinned,     // host memory known to the driver
  Pageable,   // host memory unknown to the driver
  Elsewhere,  // managed, SYNC_MEMOPS, or invalid: the driver decides
};
struct MemoryOfCall {
  CopyMemory kind = CopyMemory::Elsewhere;
  int device = -1;
  CUcontext owner = nullptr;  // of blocking memory; nullptr for any other
};
enum class Touch : std::uint8_t { Read, Write };
MemoryOfCall look_up(Engine& engine, CUdeviceptr address, Size size, Touch how);
inline MemoryOfCall look_up(Engine& engine, const void* host, Size size, Touch how) {
  return look_up(engine, reinterpret_cast<CUdeviceptr>(host), size, how);
}

// The memory that cuvmm serves at this address.
std::optional<AllocationFacts> served_at(Engine& engine, CUdeviceptr address);

// The context that owns the blocking memory; nullptr if it is stream-ordered.
CUcontext owner_of(const AllocationFacts& served);
// The same of the memory at this address, whoever serves it; nullptr too if there is none.
CUcontext owner_of(Engine& engine, CUdeviceptr address);

// Copies from pageable memory; returns false if it cannot be read. A pointer declared as host
// memory is read directly. Any other address may have no memory yet, such as the allocation of a
// queued graph, and is read with a check.
bool stage(void* to, const void* from, Size size);
bool stage(void* to, CUdeviceptr from, Size size);

}  // namespace cuvmm::hook
