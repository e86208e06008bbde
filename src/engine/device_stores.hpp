// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <memory>

#include "alloc/device_memory.hpp"
#include "alloc/memory.hpp"

namespace cuvmm {

// The process' physical memory for those who ask for chunks themselves (pools, sharing): each
// device's chunk store, and the host's. Where the program's own allocations are served from such
// stores too, they are the same ones, so that all of it counts against one limit.
class DeviceStores {
 public:
  // `memory` is what serves the program's allocations; nullptr where nobody does.
  DeviceStores(const Driver& driver, const MemorySettings& settings, Memory* memory)
      : driver_(driver), settings_(settings), memory_(memory) {}

  // Starts the driver where the program has not. NotSupported where there is no device.
  Result<int> device_count();
  // Valid as long as the process. NotSupported where the device cannot map memory.
  Result<DeviceMemory*> device(int ordinal);
  // Chunks on a NUMA node of the host.
  Result<ChunkStore*> host(int node);

 private:
  const Driver& driver_;
  const MemorySettings settings_;
  Memory* const memory_;

  Lock lock_{LockOrder::Devices};  // guards what follows
  std::array<std::unique_ptr<DeviceMemory>, AccessSet::most_devices> devices_;
  std::map<int, std::unique_ptr<ChunkStore>> hosts_;
};

}  // namespace cuvmm
