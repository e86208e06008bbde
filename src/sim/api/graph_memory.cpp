// SPDX-License-Identifier: Apache-2.0
#include "sim/graph_memory.hpp"

#include "sim/bodies.hpp"
#include "sim/graph_edit.hpp"
#include "sim/graph_work.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {

CUVMM_SIM(cuGraphAddMemAllocNode)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
 CUDA_MEM_ALLOC_NODE_PARAMS* asked) {
  NodeWork work;
  const CUresult made = allocation_work(asked, &work);
  if (made != CUDA_SUCCESS) return made;
  return add_node(out, graph, {.nodes = nodes, .count = count}, std::move(work));
}

CUVMM_SIM(cuGraphMemAllocNodeGetParams)(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  const Holding holding{graph_lock()};
  const auto node = find_node(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  if (node == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = std::get<CUDA_MEM_ALLOC_NODE_PARAMS>(node->work.operation->parameters);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphAddMemFreeNode)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count, CUdeviceptr address) {
  NodeWork work;
  const CUresult made = free_work(address, &work);
  if (made != CUDA_SUCCESS) return made;
  return add_node(out, graph, {.nodes = nodes, .count = count}, std::move(work));
}

CUVMM_SIM(cuGraphMemFreeNodeGetParams)(CUgraphNode handle, CUdeviceptr* out) {
  const Holding holding{graph_lock()};
  const auto node = find_node(handle, CU_GRAPH_NODE_TYPE_MEM_FREE);
  if (node == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = std::get<CUdeviceptr>(node->work.operation->parameters);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuDeviceGraphMemTrim)(CUdevice device) {
  if (Process::get().device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  trim_graph_memory(device);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuDeviceGetGraphMemAttribute)(CUdevice device, CUgraphMem_attribute which, void* value) {
  if (Process::get().device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const GraphMemoryUse use = graph_memory_use(device);
  auto* out = static_cast<cuuint64_t*>(value);
  switch (which) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      *out = use.used;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *out = use.used_high;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *out = use.reserved;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *out = use.reserved_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUVMM_SIM(cuDeviceSetGraphMemAttribute)(CUdevice device, CUgraphMem_attribute which, void* value) {
  if (Process::get().device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const bool settable =
      which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  if (!settable || value == nullptr || *static_cast<const cuuint64_t*>(value) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  reset_graph_memory_high(device, which);
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
