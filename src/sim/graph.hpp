// SPDX-License-Identifier: Apache-2.0
// Graphs: operations and their dependencies. Guarded by graph_lock(), which also guards captures,
// since a capture builds a graph.
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

// Where a copy reads or writes mapped memory, and the kind of memory that was mapped there when the
// copy was added or last changed. An update of an instance may change the address, but not the kind
// (measured).
struct MappedSide {
  enum class Kind : std::uint8_t { NotMapped, OnDevices, OnHost, OnBoth };
  CUdeviceptr address = 0;
  Kind kind = Kind::NotMapped;
};

// The work of a node.
struct NodeWork {
  std::shared_ptr<const Operation> operation;
  std::weak_ptr<Context> context;       // empty: the context in which the graph is launched
  std::shared_ptr<Graph> child;         // CU_GRAPH_NODE_TYPE_GRAPH
  std::shared_ptr<GraphMemory> memory;  // CU_GRAPH_NODE_TYPE_MEM_ALLOC, _MEM_FREE
  MappedSide copies_from, copies_to;    // CU_GRAPH_NODE_TYPE_MEMCPY

  CUgraphNodeType type() const { return operation->type; }
};

struct Edge {
  Node* node = nullptr;
  CUgraphEdgeData data{};
};

struct Node {
  Graph* graph = nullptr;
  NodeWork work;
  std::vector<Edge> before;      // its dependencies
  std::vector<Edge> after;       // its dependents
  CUgraphNode origin = nullptr;  // the node that this is a copy of
  bool enabled = true;
  std::map<int, CUkernelNodeAttrValue> attributes;
  std::vector<void*> parameter_pointers;  // storage handed out by cuGraphKernelNodeGetParams

  CUgraphNode handle() const { return reinterpret_cast<CUgraphNode>(const_cast<Node*>(this)); }
  CUgraphNodeType type() const { return work.type(); }
};

struct Graph : std::enable_shared_from_this<Graph> {
  std::vector<std::shared_ptr<Node>> nodes;  // in insertion order
  std::vector<std::shared_ptr<UserReference>> user_references;
  bool is_public = false;  // the program has handles to it and its nodes
  bool is_owned = false;   // by a node of another graph, and destroyed with it
  bool is_captured_into = false;
  std::weak_ptr<void> instance;  // a graph with memory nodes may have only one

  CUgraph handle() const { return reinterpret_cast<CUgraph>(const_cast<Graph*>(this)); }

  Node& add(NodeWork work);
  // Precondition: the edge does not exist, and both nodes belong to this graph.
  void connect(Node& from, Node& to, const CUgraphEdgeData& data);
  bool disconnect(Node& from, Node& to);
  bool are_connected(const Node& from, const Node& to) const;
  void remove(Node& node);
  bool has_memory_nodes() const;
  // Whether one of its nodes frees this memory.
  bool frees(const GraphMemory& memory) const;

  // Returns each node after all of its dependencies. If there is a cycle, returns nothing and, if
  // requested, stores a node of the cycle in `in_circle`.
  std::optional<std::vector<Node*>> order(CUgraphNode* in_circle = nullptr) const;

  // Copies the nodes, the edges and the references to user objects. The copy is private until it is
  // published.
  std::shared_ptr<Graph> clone() const;

  // Give handles to the graph, its nodes and its child graphs to the program, and take them away.
  void publish();
  void withdraw();
};

// The nodes of all public graphs, by handle.
Registry<Node, CUgraphNode>& graph_nodes();

// Returns the nodes with these handles; nothing if a node is not of this graph or occurs twice.
std::optional<std::vector<Node*>> nodes_of(const Graph& graph, const CUgraphNode* handles,
                                           size_t count);

}  // namespace cuvmm::sim
