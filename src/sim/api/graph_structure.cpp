// SPDX-License-Identifier: Apache-2.0
// Creating and destroying graphs, and the edges between their nodes.
#include <set>

#include "sim/bodies.hpp"
#include "sim/graph_edit.hpp"
#include "sim/process.hpp"
#include "sim/user_object.hpp"

namespace cuvmm::sim {
namespace {

std::shared_ptr<Graph> find_graph(CUgraph graph) {
  return Process::get().graphs.find(graph);
}

struct EdgeList {
  std::vector<CUgraphNode> from;
  std::vector<CUgraphNode> to;
  std::vector<CUgraphEdgeData> data;
  bool is_plain = true;

  void add(const Node& first, const Node& second, const CUgraphEdgeData& edge) {
    from.push_back(first.handle());
    to.push_back(second.handle());
    data.push_back(edge);
    is_plain = is_plain && sim::is_plain(edge);
  }
};

// Whether the call returns edge data too. Without it, a call that would hide edge data fails.
enum class WithData : std::uint8_t { No, Yes };

CUresult list_edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                    size_t* count, WithData with_data) {
  const Holding holding{graph_lock()};
  const auto graph = find_graph(handle);
  if (graph == nullptr || count == nullptr || (from == nullptr) != (to == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  EdgeList edges;
  for (const auto& node : graph->nodes) {
    for (const Edge& edge : node->after) edges.add(*node, *edge.node, edge.data);
  }
  const bool lossy = with_data == WithData::No || (from != nullptr && data == nullptr);
  if (lossy && !edges.is_plain) return CUDA_ERROR_LOSSY_QUERY;
  const size_t room = *count;
  give_out(edges.from, from, room, count);
  give_out(edges.to, to, room, count);
  if (data != nullptr) give_out(edges.data, data, room, count);
  return CUDA_SUCCESS;
}

enum class Side : std::uint8_t { Before, After };

CUresult list_neighbours(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data,
                         size_t* count, Side side, WithData with_data) {
  const Holding holding{graph_lock()};
  const auto node = graph_nodes().find(handle);
  if (node == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EdgeList edges;
  for (const Edge& edge : side == Side::Before ? node->before : node->after) {
    edges.add(*edge.node, *edge.node, edge.data);
  }
  const bool lossy = with_data == WithData::No || (nodes != nullptr && data == nullptr);
  if (lossy && !edges.is_plain) return CUDA_ERROR_LOSSY_QUERY;
  const size_t room = *count;
  give_out(edges.from, nodes, room, count);
  if (data != nullptr) give_out(edges.data, data, room, count);
  return CUDA_SUCCESS;
}

// Adds all of the edges, or none.
CUresult add_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                   const CUgraphEdgeData* data, size_t count) {
  const Holding holding{graph_lock()};
  const auto graph = find_graph(handle);
  if (graph == nullptr || (count != 0 && (from == nullptr || to == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::set<std::pair<const Node*, const Node*>> once;
  std::vector<std::pair<Node*, Node*>> pairs;
  for (size_t i = 0; i < count; ++i) {
    const auto first = nodes_of(*graph, &from[i], 1);
    const auto second = nodes_of(*graph, &to[i], 1);
    if (!first || !second) return CUDA_ERROR_INVALID_VALUE;
    Node* before = first->front();
    Node* after = second->front();
    const CUgraphEdgeData edge = data == nullptr ? CUgraphEdgeData{} : data[i];
    if (before == after || graph->are_connected(*before, *after) ||
        !once.insert({before, after}).second || !is_edge(edge, *before, *after)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    pairs.emplace_back(before, after);
  }
  for (size_t i = 0; i < count; ++i) {
    graph->connect(*pairs[i].first, *pairs[i].second,
                   data == nullptr ? CUgraphEdgeData{} : data[i]);
  }
  return CUDA_SUCCESS;
}

CUresult remove_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                      size_t count) {
  const Holding holding{graph_lock()};
  const auto graph = find_graph(handle);
  if (graph == nullptr || (count != 0 && (from == nullptr || to == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<std::pair<Node*, Node*>> pairs;
  for (size_t i = 0; i < count; ++i) {
    const auto first = nodes_of(*graph, &from[i], 1);
    const auto second = nodes_of(*graph, &to[i], 1);
    if (!first || !second || !graph->are_connected(*first->front(), *second->front())) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    pairs.emplace_back(first->front(), second->front());
  }
  if (count != 0 && graph->has_memory_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
  for (const auto& [before, after] : pairs) graph->disconnect(*before, *after);
  return CUDA_SUCCESS;
}

}  // namespace

CUVMM_SIM(cuGraphCreate)(CUgraph* out, unsigned flags) {
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto graph = std::make_shared<Graph>();
  const Holding holding{graph_lock()};
  graph->publish();
  *out = graph->handle();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphDestroy)(CUgraph handle) {
  std::shared_ptr<Graph> gone;  // destroyed after the lock: callbacks run
  const Holding holding{graph_lock()};
  gone = find_graph(handle);
  if (gone == nullptr || gone->is_owned || gone->is_captured_into) return CUDA_ERROR_INVALID_VALUE;
  gone->withdraw();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphClone)(CUgraph* out, CUgraph handle) {
  const Holding holding{graph_lock()};
  const auto graph = find_graph(handle);
  if (graph == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (graph->has_memory_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
  const auto copy = graph->clone();
  copy->publish();
  *out = copy->handle();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphNodeFindInClone)(CUgraphNode* out, CUgraphNode original, CUgraph clone) {
  const Holding holding{graph_lock()};
  const auto graph = find_graph(clone);
  if (graph == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& node : graph->nodes) {
    if (original == nullptr || node->origin != original) continue;
    *out = node->handle();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUVMM_SIM(cuGraphDestroyNode)(CUgraphNode handle) {
  std::shared_ptr<Node> gone;
  const Holding holding{graph_lock()};
  gone = graph_nodes().find(handle);
  if (gone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (gone->graph->has_memory_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
  gone->graph->remove(*gone);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphNodeGetType)(CUgraphNode handle, CUgraphNodeType* type) {
  const Holding holding{graph_lock()};
  const auto node = graph_nodes().find(handle);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphGetNodes)(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  const Holding holding{graph_lock()};
  const auto graph = find_graph(handle);
  if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> all;
  for (const auto& node : graph->nodes) all.push_back(node->handle());
  give_out(all, nodes, *count, count);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphGetRootNodes)(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  const Holding holding{graph_lock()};
  const auto graph = find_graph(handle);
  if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> roots;
  for (const auto& node : graph->nodes) {
    if (node->before.empty()) roots.push_back(node->handle());
  }
  give_out(roots, nodes, *count, count);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphGetEdges)(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return list_edges(graph, from, to, nullptr, count, WithData::No);
}
CUVMM_SIM(cuGraphGetEdges_v2)
(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  return list_edges(graph, from, to, data, count, WithData::Yes);
}

CUVMM_SIM(cuGraphNodeGetDependencies)(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return list_neighbours(node, nodes, nullptr, count, Side::Before, WithData::No);
}
CUVMM_SIM(cuGraphNodeGetDependencies_v2)
(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  return list_neighbours(node, nodes, data, count, Side::Before, WithData::Yes);
}

CUVMM_SIM(cuGraphNodeGetDependentNodes)(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return list_neighbours(node, nodes, nullptr, count, Side::After, WithData::No);
}
CUVMM_SIM(cuGraphNodeGetDependentNodes_v2)
(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  return list_neighbours(node, nodes, data, count, Side::After, WithData::Yes);
}

CUVMM_SIM(cuGraphAddDependencies)
(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return add_edges(graph, from, to, nullptr, count);
}
CUVMM_SIM(cuGraphAddDependencies_v2)
(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
 size_t count) {
  return add_edges(graph, from, to, data, count);
}

CUVMM_SIM(cuGraphRemoveDependencies)
(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return remove_edges(graph, from, to, count);
}
CUVMM_SIM(cuGraphRemoveDependencies_v2)
(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData*,
 size_t count) {
  return remove_edges(graph, from, to, count);
}

}  // namespace cuvmm::sim
