// SPDX-License-Identifier: Apache-2.0
// Code shared by the calls that add, change or list nodes.
#pragma once

#include "sim/graph.hpp"

namespace cuvmm::sim {

struct Dependencies {
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;  // nullptr: plain edges
  size_t count = 0;
};

CUresult add_node(CUgraphNode* out, CUgraph graph, const Dependencies& dependencies, NodeWork work);
CUresult add_child(CUgraphNode* out, CUgraph graph, const Dependencies& dependencies,
                   CUgraph child);

// Returns the node if it has this type, otherwise nullptr. Call under graph_lock().
std::shared_ptr<Node> find_node(CUgraphNode node, CUgraphNodeType type);

// The new work must have the node's type.
CUresult change_node(CUgraphNode node, NodeWork work);
CUresult change_node_of(CUgraphExec exec, CUgraphNode node, NodeWork work);

bool is_edge(const CUgraphEdgeData& edge, const Node& from, const Node& to);
bool is_plain(const CUgraphEdgeData& edge);

// Returns a list in the driver's convention: only the count if `out` is nullptr; otherwise as many
// items as fit, with the rest of `out` zeroed.
template <class Item>
void give_out(const std::vector<Item>& items, Item* out, size_t room, size_t* count) {
  for (size_t i = 0; out != nullptr && i < room; ++i) out[i] = i < items.size() ? items[i] : Item{};
  *count = out == nullptr || room > items.size() ? items.size() : room;
}

}  // namespace cuvmm::sim
