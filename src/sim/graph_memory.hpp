// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "base/size.hpp"
#include "sim/cuda.hpp"

namespace cuvmm::sim {

class Device;

// Memory of a graph's allocation node: its address holds from the node's creation to the end of
// the graph and all that it was instantiated to. Here the memory is there as long as the address;
// a card brings it at the launch. // assumed: nobody can tell but by how full the device is
struct GraphMemory {
  // nullptr where the device is full.
  static std::shared_ptr<GraphMemory> create(Device& device, Size size,
                                             const std::vector<int>& accessors);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  const CUdeviceptr address;
  const Size size;
  const int device;
  bool was_launched = false;            // guarded with the rest of what is known of graph memory
  std::vector<CUmemAccessDesc> access;  // as it was asked for; set before anybody knows of it

 private:
  GraphMemory(CUdeviceptr where, Size bytes, int ordinal)
      : address(where), size(bytes), device(ordinal) {}
};

// The graph memory that begins at this address, allocated or not.
std::shared_ptr<GraphMemory> find_graph_memory(CUdeviceptr address);

// A launch allocates it; false where it is allocated already. From then on it is kept until it is
// freed, whatever becomes of the graph.
bool allocate_graph_memory(const std::shared_ptr<GraphMemory>& memory);
bool is_allocated(const GraphMemory& memory);

// Frees it, by a node or by the program (cuMemFree, cuMemFreeAsync). The caller drops what it gets
// when the free takes effect; nullptr where this is no allocated graph memory.
std::shared_ptr<GraphMemory> take_graph_memory(CUdeviceptr address);

// cuDeviceGetGraphMemAttribute and its like.
struct GraphMemoryUse {
  Size used = 0;
  Size used_high = 0;
  Size reserved = 0;
  Size reserved_high = 0;
};
GraphMemoryUse graph_memory_use(int device);
// cuDeviceGraphMemTrim: what is not allocated is no longer kept, though its graphs live.
// assumed: a launch that has not run yet does not hold what its own nodes free again
void trim_graph_memory(int device);
void reset_graph_memory_high(int device, CUgraphMem_attribute which);

}  // namespace cuvmm::sim
