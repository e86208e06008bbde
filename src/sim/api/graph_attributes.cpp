// SPDX-License-Identifier: Apache-2.0
// The attributes of kernel nodes, and graphs written as text.
#include <cstdio>

#include "sim/bodies.hpp"
#include "sim/graph_edit.hpp"
#include "sim/module.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

bool is_node_attribute(CUkernelNodeAttrID attribute) {
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return true;
    default:
      return false;
  }
}

const char* name_of(CUgraphNodeType type) {
  constexpr const char* names[] = {
      "KERNEL",      "MEMCPY",       "MEMSET",           "HOST",           "GRAPH",     "EMPTY",
      "WAIT_EVENT",  "EVENT_RECORD", "EXT_SEMAS_SIGNAL", "EXT_SEMAS_WAIT", "MEM_ALLOC", "MEM_FREE",
      "BATCH_MEM_OP"};
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(names) ? names[index] : "UNKNOWN";
}

void print_nodes(std::FILE* file, const Graph& graph) {
  for (const auto& node : graph.nodes) {
    const auto* launch = std::get_if<Launch>(&node->work.operation->parameters);
    std::fprintf(file, "  \"%p\" [label=\"%s%s%s\"];\n", static_cast<const void*>(node.get()),
                 name_of(node->type()), launch == nullptr ? "" : " ",
                 launch == nullptr ? "" : launch->function->name().c_str());
    for (const Edge& edge : node->after) {
      std::fprintf(file, "  \"%p\" -> \"%p\";\n", static_cast<const void*>(node.get()),
                   static_cast<const void*>(edge.node));
    }
    if (node->work.child != nullptr) print_nodes(file, *node->work.child);
  }
}

}  // namespace

CUVMM_SIM(cuGraphKernelNodeGetAttribute)
(CUgraphNode handle, CUkernelNodeAttrID attribute, CUkernelNodeAttrValue* value) {
  const Holding holding{graph_lock()};
  const auto node = find_node(handle, CU_GRAPH_NODE_TYPE_KERNEL);
  if (node == nullptr || value == nullptr || !is_node_attribute(attribute)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto found = node->attributes.find(attribute);
  *value = found == node->attributes.end() ? CUkernelNodeAttrValue{} : found->second;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphKernelNodeSetAttribute)
(CUgraphNode handle, CUkernelNodeAttrID attribute, const CUkernelNodeAttrValue* value) {
  const Holding holding{graph_lock()};
  const auto node = find_node(handle, CU_GRAPH_NODE_TYPE_KERNEL);
  if (node == nullptr || value == nullptr || !is_node_attribute(attribute)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  node->attributes[attribute] = *value;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphKernelNodeCopyAttributes)(CUgraphNode to, CUgraphNode from) {
  const Holding holding{graph_lock()};
  const auto target = find_node(to, CU_GRAPH_NODE_TYPE_KERNEL);
  const auto source = find_node(from, CU_GRAPH_NODE_TYPE_KERNEL);
  if (target == nullptr || source == nullptr) return CUDA_ERROR_INVALID_VALUE;
  target->attributes = source->attributes;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphDebugDotPrint)(CUgraph handle, const char* path, unsigned) {
  const Holding holding{graph_lock()};
  const auto graph = Process::get().graphs.find(handle);
  if (graph == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* file = std::fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  std::fprintf(file, "digraph dot {\n");
  print_nodes(file, *graph);
  std::fprintf(file, "}\n");
  return std::fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace cuvmm::sim
