// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <memory>

#include "alloc/device_memory.hpp"
#include "alloc/memory.hpp"

namespace cuvmm {

// The process's physical memory for subsystems that map chunks themselves (pools, sharing): the
// chunk store of each device, and of the host. If cuvmm also serves the program's allocations, they
// use the same stores, so that everything counts against one limit.
class DeviceStores {
 public:
  // `memory` serves the program's allocations; nullptr if the driver does.
  DeviceStores(const Driver& driver, const MemorySettings& settings, Memory* memory)
      : driver_(driver), settings_(settings), memory_(memory) {}

  // Initializes the driver if the program has not. NotSupported if there is no device.
  Result<int> device_count();
  // Valid for the life of the process. NotSupported if the device cannot map memory.
  Result<DeviceMemory*> device(int ordinal);
  // Chunks on a NUMA node of the host.
  Result<ChunkStore*> host(int node);
  // Gives free chunks back to the driver.
  void trim();

 private:
  const Driver& driver_;
  const MemorySettings settings_;
  Memory* const memory_;

  Lock lock_{LockOrder::Devices};  // guards the members below
  std::array<std::unique_ptr<DeviceMemory>, AccessSet::most_devices> devices_;
  std::map<int, std::unique_ptr<ChunkStore>> hosts_;
};

}  // namespace cuvmm
