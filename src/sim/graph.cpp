// SPDX-License-Identifier: Apache-2.0
#include "sim/graph.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/made_once.hpp"
#include "sim/graph_memory.hpp"
#include "sim/process.hpp"
#include "sim/user_object.hpp"

namespace cuvmm::sim {
namespace {

bool erase_edge(std::vector<Edge>& edges, const Node& to) {
  return std::erase_if(edges, [&](const Edge& edge) { return edge.node == &to; }) != 0;
}

}  // namespace

Lock& graph_lock() {
  static constinit Lock lock{LockOrder::SimCapture};
  return lock;
}

Registry<Node, CUgraphNode>& graph_nodes() {
  static constinit MadeOnce<Registry<Node, CUgraphNode>> all;
  return all.get();
}

Node& Graph::add(NodeWork work) {
  auto node = std::make_shared<Node>();
  node->graph = this;
  node->work = std::move(work);
  if (node->work.child != nullptr) {
    node->work.child->is_owned = true;
    if (is_public) node->work.child->publish();
  }
  if (is_public) graph_nodes().add(node);
  nodes.push_back(std::move(node));
  return *nodes.back();
}

void Graph::connect(Node& from, Node& to, const CUgraphEdgeData& data) {
  from.after.push_back({&to, data});
  to.before.push_back({&from, data});
}

bool Graph::disconnect(Node& from, Node& to) {
  return erase_edge(from.after, to) && erase_edge(to.before, from);
}

bool Graph::are_connected(const Node& from, const Node& to) const {
  return std::any_of(from.after.begin(), from.after.end(),
                     [&](const Edge& edge) { return edge.node == &to; });
}

void Graph::remove(Node& node) {
  for (const Edge& edge : node.before) erase_edge(edge.node->after, node);
  for (const Edge& edge : node.after) erase_edge(edge.node->before, node);
  if (is_public) graph_nodes().remove(node.handle());
  if (node.work.child != nullptr) node.work.child->withdraw();
  std::erase_if(nodes, [&](const auto& known) { return known.get() == &node; });
}

bool Graph::has_memory_nodes() const {
  return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
    return node->work.memory != nullptr ||
           (node->work.child != nullptr && node->work.child->has_memory_nodes());
  });
}

bool Graph::frees(const GraphMemory& memory) const {
  return std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) {
    return node->type() == CU_GRAPH_NODE_TYPE_MEM_FREE && node->work.memory.get() == &memory;
  });
}

std::optional<std::vector<Node*>> Graph::order(CUgraphNode* in_circle) const {
  std::unordered_map<const Node*, std::size_t> missing;
  std::vector<Node*> ordered;
  ordered.reserve(nodes.size());
  for (const auto& node : nodes) {
    missing[node.get()] = node->before.size();
    if (node->before.empty()) ordered.push_back(node.get());
  }
  for (std::size_t next = 0; next < ordered.size(); ++next) {
    for (const Edge& edge : ordered[next]->after) {
      if (--missing[edge.node] == 0) ordered.push_back(edge.node);
    }
  }
  if (ordered.size() == nodes.size()) return ordered;
  for (const auto& node : nodes) {
    if (in_circle != nullptr && missing[node.get()] != 0) *in_circle = node->handle();
  }
  return std::nullopt;
}

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>();
  std::unordered_map<const Node*, Node*> copies;
  for (const auto& node : nodes) {
    NodeWork work = node->work;
    if (work.child != nullptr) work.child = work.child->clone();
    Node& made = copy->add(std::move(work));
    made.origin = node->handle();
    made.enabled = node->enabled;
    made.attributes = node->attributes;
    copies[node.get()] = &made;
  }
  for (const auto& node : nodes) {
    for (const Edge& edge : node->after) {
      copy->connect(*copies[node.get()], *copies[edge.node], edge.data);
    }
  }
  for (const auto& reference : user_references) {
    copy->user_references.push_back(reference->duplicate());
  }
  return copy;
}

void Graph::publish() {
  if (is_public) return;
  is_public = true;
  Process::get().graphs.add(shared_from_this());
  for (const auto& node : nodes) {
    graph_nodes().add(node);
    if (node->work.child != nullptr) node->work.child->publish();
  }
}

void Graph::withdraw() {
  if (!is_public) return;
  is_public = false;
  Process::get().graphs.remove(handle());
  for (const auto& node : nodes) {
    graph_nodes().remove(node->handle());
    if (node->work.child != nullptr) node->work.child->withdraw();
  }
}

std::optional<std::vector<Node*>> nodes_of(const Graph& graph, const CUgraphNode* handles,
                                           size_t count) {
  if (count != 0 && handles == nullptr) return std::nullopt;
  std::vector<Node*> found;
  std::set<const Node*> once;
  for (size_t i = 0; i < count; ++i) {
    const auto node = graph_nodes().find(handles[i]);
    if (node == nullptr || node->graph != &graph || !once.insert(node.get()).second) {
      return std::nullopt;
    }
    found.push_back(node.get());
  }
  return found;
}

}  // namespace cuvmm::sim
