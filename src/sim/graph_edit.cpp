// SPDX-License-Identifier: Apache-2.0
#include "sim/graph_edit.hpp"

#include "sim/graph_exec.hpp"
#include "sim/graph_work.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

// The caller holds graph_lock().
CUresult add_locked(CUgraphNode* out, CUgraph handle, const Dependencies& dependencies,
                    NodeWork work) {
  const auto graph = Process::get().graphs.find(handle);
  if (graph == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto before = nodes_of(*graph, dependencies.nodes, dependencies.count);
  if (!before) return CUDA_ERROR_INVALID_VALUE;
  if (work.type() == CU_GRAPH_NODE_TYPE_MEM_FREE && graph->frees(*work.memory)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Node& node = graph->add(std::move(work));
  for (size_t i = 0; i < dependencies.count; ++i) {
    const CUgraphEdgeData edge =
        dependencies.edges == nullptr ? CUgraphEdgeData{} : dependencies.edges[i];
    if (!is_edge(edge, *(*before)[i], node)) {
      graph->remove(node);
      return CUDA_ERROR_INVALID_VALUE;
    }
    graph->connect(*(*before)[i], node, edge);
  }
  *out = node.handle();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult add_node(CUgraphNode* out, CUgraph graph, const Dependencies& dependencies,
                  NodeWork work) {
  const NodeWork kept = work;  // a refused node's resources are released without the lock
  const Holding holding{graph_lock()};
  return add_locked(out, graph, dependencies, std::move(work));
}

CUresult add_child(CUgraphNode* out, CUgraph graph, const Dependencies& dependencies,
                   CUgraph child) {
  NodeWork work;
  const Holding holding{graph_lock()};
  if (child == graph) return CUDA_ERROR_INVALID_VALUE;  // a card crashes
  const CUresult made = child_work(child, &work);
  return made == CUDA_SUCCESS ? add_locked(out, graph, dependencies, work) : made;
}

std::shared_ptr<Node> find_node(CUgraphNode handle, CUgraphNodeType type) {
  auto node = graph_nodes().find(handle);
  return node != nullptr && node->type() == type ? node : nullptr;
}

CUresult change_node(CUgraphNode handle, NodeWork work) {
  const Holding holding{graph_lock()};
  const auto node = find_node(handle, work.type());
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::swap(node->work.operation, work.operation);
  node->work.context = work.context;
  node->work.copies_from = work.copies_from;
  node->work.copies_to = work.copies_to;
  return CUDA_SUCCESS;
}

CUresult change_node_of(CUgraphExec handle, CUgraphNode of, NodeWork work) {
  const Holding holding{graph_lock()};
  const auto exec = Process::get().graph_execs.find(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Node* node = exec->find(of);
  if (node == nullptr || node->type() != work.type()) return CUDA_ERROR_INVALID_VALUE;
  if (!may_take(*node, work)) return CUDA_ERROR_INVALID_VALUE;
  take(*node, work);
  return CUDA_SUCCESS;
}

bool is_plain(const CUgraphEdgeData& edge) {
  return edge.from_port == 0 && edge.to_port == 0 && edge.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
}

bool is_edge(const CUgraphEdgeData& edge, const Node& from, const Node& to) {
  for (const unsigned char byte : edge.reserved) {
    if (byte != 0) return false;
  }
  if (is_plain(edge)) return true;
  // Only kernels can signal, other than by completing, that their dependents may begin.
  const bool from_kernel = from.type() == CU_GRAPH_NODE_TYPE_KERNEL;
  const bool to_kernel = to.type() == CU_GRAPH_NODE_TYPE_KERNEL;
  if (edge.to_port != 0 || edge.from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER) return false;
  if (edge.type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) return false;
  return from_kernel && (edge.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT || to_kernel);
}

}  // namespace cuvmm::sim
