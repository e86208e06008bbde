// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "sim/executor.hpp"
#include "sim/graph.hpp"

namespace cuvmm::sim {

struct Stream;

// A graph ready to be launched. It has its own copy of the graph, which later changes of the graph
// do not affect. Guarded by graph_lock().
struct GraphExec : std::enable_shared_from_this<GraphExec> {
  // Returns nullptr if the graph has a cycle.
  static std::shared_ptr<GraphExec> create(const Graph& graph, cuuint64_t flags);

  cuuint64_t flags = 0;
  std::shared_ptr<Graph> graph;
  std::vector<Node*> steps;  // in a valid execution order, with child graphs inlined

  // Launches of one instance run one after the other.
  Point last_launch;

  // Returns the node that was copied from `origin`, or nullptr.
  Node* find(CUgraphNode origin) const;

 private:
  bool unfold(const Graph& from);
  std::map<CUgraphNode, Node*> by_origin_;
};

// Runs the graph in stream order and after its own last launch. If the stream is captured, adds the
// graph as a node instead.
CUresult launch_graph(const std::shared_ptr<GraphExec>& exec,
                      const std::shared_ptr<Stream>& stream);

struct UpdateResult {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  CUgraphNode node = nullptr;  // the node at which it failed
};
// Whether the node of an instance may get this work.
bool may_take(const Node& node, const NodeWork& work);
void take(Node& node, NodeWork& work);

// Takes over the work of all nodes of a graph with the same topology, or of none.
UpdateResult update_nodes(Graph& ours, const Graph& theirs);

}  // namespace cuvmm::sim
