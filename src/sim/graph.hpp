// SPDX-License-Identifier: Apache-2.0
// Graphs: operations and the order between them. All of it is guarded by graph_lock(), the lock of
// captures too, since a capture builds a graph.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/lock.hpp"
#include "sim/cuda.hpp"
#include "sim/operation.hpp"
#include "sim/registry.hpp"

namespace cuvmm::sim {

class Capture;
class Context;
struct Graph;
struct GraphMemory;
struct Node;
class UserReference;

Lock& graph_lock();

// What a node does.
struct NodeWork {
  std::shared_ptr<const Operation> operation;
  std::weak_ptr<Context> context;  // where; empty: in the context that the graph is launched in
  std::shared_ptr<Graph> child;    // CU_GRAPH_NODE_TYPE_GRAPH
  std::shared_ptr<GraphMemory> memory;  // CU_GRAPH_NODE_TYPE_MEM_ALLOC, _MEM_FREE

  CUgraphNodeType type() const { return operation->type; }
};

struct Edge {
  Node* node = nullptr;
  CUgraphEdgeData data{};
};

struct Node {
  Graph* graph = nullptr;
  NodeWork work;
  std::vector<Edge> before;      // what it depends on
  std::vector<Edge> after;       // what depends on it
  CUgraphNode origin = nullptr;  // what it is a copy of
  bool enabled = true;
  std::map<int, CUkernelNodeAttrValue> attributes;
  std::vector<void*> parameter_pointers;  // what cuGraphKernelNodeGetParams gave out

  CUgraphNode handle() const { return reinterpret_cast<CUgraphNode>(const_cast<Node*>(this)); }
  CUgraphNodeType type() const { return work.type(); }
};

struct Graph : std::enable_shared_from_this<Graph> {
  std::vector<std::shared_ptr<Node>> nodes;  // in the order in which they were added
  std::vector<std::shared_ptr<UserReference>> user_references;
  bool is_public = false;  // the program has handles to it and its nodes
  bool is_owned = false;   // by a node of another graph, with which it lives and dies
  bool is_captured_into = false;
  std::weak_ptr<void> instance;  // the one that a graph with memory nodes may have

  CUgraph handle() const { return reinterpret_cast<CUgraph>(const_cast<Graph*>(this)); }

  Node& add(NodeWork work);
  // The edge must not be there yet, and both nodes must be of this graph.
  void connect(Node& from, Node& to, const CUgraphEdgeData& data);
  bool disconnect(Node& from, Node& to);
  bool are_connected(const Node& from, const Node& to) const;
  void remove(Node& node);
  bool has_memory_nodes() const;
  // Whether a node of it frees this memory.
  bool frees(const GraphMemory& memory) const;

  // Each node after all that it depends on; nothing where they depend on each other in a circle,
  // and then a node of the circle, if asked for.
  std::optional<std::vector<Node*>> order(CUgraphNode* in_circle = nullptr) const;

  // The same nodes and edges, and what they hold on to. Private until it is published.
  std::shared_ptr<Graph> clone() const;

  // Gives the program handles to the graph, its nodes and the graphs inside of it; takes them away.
  void publish();
  void withdraw();
};

// Nodes by their handles, of all public graphs.
Registry<Node, CUgraphNode>& graph_nodes();

// Nodes by handle; empty where one is not of this graph, or is there twice.
std::optional<std::vector<Node*>> nodes_of(const Graph& graph, const CUgraphNode* handles,
                                           size_t count);

}  // namespace cuvmm::sim
