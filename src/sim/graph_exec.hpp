// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "sim/executor.hpp"
#include "sim/graph.hpp"

namespace cuvmm::sim {

struct Stream;

// A graph made ready to be launched: a copy of its own, which later changes of the graph do not
// reach. Guarded by graph_lock().
struct GraphExec : std::enable_shared_from_this<GraphExec> {
  // nullptr where nodes depend on each other in a circle.
  static std::shared_ptr<GraphExec> create(const Graph& graph, cuuint64_t flags);

  cuuint64_t flags = 0;
  std::shared_ptr<Graph> graph;
  std::vector<Node*> steps;  // in an order that they may run in; inner graphs are unfolded

  // Launches of one instance run one after the other.
  Point last_launch;

  // The node that was made from this node of the graph; nullptr where there is none.
  Node* find(CUgraphNode origin) const;

 private:
  bool unfold(const Graph& from);
  std::map<CUgraphNode, Node*> by_origin_;
};

// Runs it in the stream's order, and after its own last launch; or, while the stream is captured,
// makes it a node there.
CUresult launch_graph(const std::shared_ptr<GraphExec>& exec,
                      const std::shared_ptr<Stream>& stream);

// Takes over what the nodes of a graph of the same shape do: all of it, or nothing.
struct UpdateResult {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  CUgraphNode node = nullptr;  // where it failed
};
UpdateResult update_nodes(Graph& ours, const Graph& theirs);

}  // namespace cuvmm::sim
