// SPDX-License-Identifier: Apache-2.0
// Copies of graphs, where some of their memory is spilled. To the driver, a copy from or to the
// host is another kind of copy, which an update of an instance cannot turn into a copy within the
// device (measured). So that a program does not see this, spilled memory is moved to the device
// when a copy of it is added to a graph, and when an update is refused. The driver goes by where a
// copy begins.
#pragma once

#include <array>

#include "engine/control.hpp"
#include "hook/record.hpp"

namespace cuvmm::hook {

inline CUdeviceptr mapped_address(CUmemorytype type, CUdeviceptr address) {
  return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ? address : 0;
}

// Returns whether that moved any memory. For a thread inside the call.
template <Call call>
bool move_near(const Forward<call>& forward, const CUDA_MEMCPY3D* copy) {
  const Serving* const serving = forward.engine().serving();
  Control* const control = forward.engine().control();
  if (copy == nullptr || serving == nullptr || control == nullptr) return false;
  if (control->spilled().physical_in_use == 0) [[likely]]
    return false;
  const std::array<CUdeviceptr, 2> named{mapped_address(copy->srcMemoryType, copy->srcDevice),
                                         mapped_address(copy->dstMemoryType, copy->dstDevice)};
  return control->move_near(named);
}

inline const CUDA_MEMCPY3D* copy_of(const CUgraphNodeParams* node) {
  const bool is_copy = node != nullptr && node->type == CU_GRAPH_NODE_TYPE_MEMCPY;
  return is_copy ? &node->memcpy.copyParams : nullptr;
}

}  // namespace cuvmm::hook
