// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "base/size.hpp"
#include "sim/cuda.hpp"

namespace cuvmm::sim {

class Device;

// The memory of a graph's allocation node. Its address is valid from the node's creation until the
// graph and all its instances are destroyed. Here memory backs the address all that time; on a card
// the launch maps it.
// assumed: only the amount of free device memory shows the difference
struct GraphMemory {
  // Returns nullptr if the device is full.
  static std::shared_ptr<GraphMemory> create(Device& device, Size size,
                                             const std::vector<int>& accessors);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  const CUdeviceptr address;
  const Size size;
  const int device;
  bool was_launched = false;            // guarded by the lock of all graph memory
  std::vector<CUmemAccessDesc> access;  // as requested; set before the memory is in use

 private:
  GraphMemory(CUdeviceptr where, Size bytes, int ordinal)
      : address(where), size(bytes), device(ordinal) {}
};

// Returns the graph memory that begins at this address, allocated or not.
std::shared_ptr<GraphMemory> find_graph_memory(CUdeviceptr address);

// Called when a launch allocates it; returns false if it is already allocated. Afterwards it lives
// until it is freed, even if the graph is destroyed.
bool allocate_graph_memory(const std::shared_ptr<GraphMemory>& memory);
bool is_allocated(const GraphMemory& memory);

// Frees it, by a node or by the program (cuMemFree, cuMemFreeAsync). The caller drops the returned
// reference when the free takes effect. Returns nullptr if there is no allocated graph memory at
// the address.
std::shared_ptr<GraphMemory> take_graph_memory(CUdeviceptr address);

// cuDeviceGetGraphMemAttribute and its like.
struct GraphMemoryUse {
  Size used = 0;
  Size used_high = 0;
  Size reserved = 0;
  Size reserved_high = 0;
};
GraphMemoryUse graph_memory_use(int device);
// cuDeviceGraphMemTrim: no longer counts memory that is not allocated as reserved, even if its
// graphs live.
// assumed: a launch that has not run yet does not hold memory that its own nodes free again
void trim_graph_memory(int device);
void reset_graph_memory_high(int device, CUgraphMem_attribute which);

}  // namespace cuvmm::sim
