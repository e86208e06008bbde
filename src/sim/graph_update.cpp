// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <unordered_map>

#include "sim/graph_exec.hpp"
#include "sim/module.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

using Pairs = std::vector<std::pair<Node*, const Node*>>;  // our node and its counterpart

std::set<std::size_t> places_before(const Node& node,
                                    const std::unordered_map<const Node*, std::size_t>& places) {
  std::set<std::size_t> before;
  for (const Edge& edge : node.before) before.insert(places.at(edge.node));
  return before;
}

// Nodes are paired in the order in which they were added.
UpdateResult pair_nodes(Graph& ours, const Graph& theirs, Pairs& pairs) {
  if (ours.nodes.size() != theirs.nodes.size()) {
    return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr};
  }
  std::unordered_map<const Node*, std::size_t> our_places;
  std::unordered_map<const Node*, std::size_t> their_places;
  for (std::size_t i = 0; i < ours.nodes.size(); ++i) {
    our_places[ours.nodes[i].get()] = i;
    their_places[theirs.nodes[i].get()] = i;
  }
  for (std::size_t i = 0; i < ours.nodes.size(); ++i) {
    Node& our = *ours.nodes[i];
    const Node& their = *theirs.nodes[i];
    if (our.type() != their.type()) {
      return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, their.handle()};
    }
    if (places_before(our, our_places) != places_before(their, their_places)) {
      return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, their.handle()};
    }
    pairs.emplace_back(&our, &their);
    if (our.work.child == nullptr) continue;
    const UpdateResult inside = pair_nodes(*our.work.child, *their.work.child, pairs);
    if (inside.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return inside;
  }
  return {};
}

CUgraphExecUpdateResult may_become(const Node& our, const Node& their) {
  if (our.work.memory != their.work.memory) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  if (!may_take(our, their.work)) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  const bool moved = our.work.context.lock() != their.work.context.lock();
  if (!moved) return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return our.type() == CU_GRAPH_NODE_TYPE_KERNEL
             ? CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE
             : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

// For the same address the driver does not compare: its memory may have moved in the meantime.
bool may_become(const MappedSide& now, const MappedSide& next) {
  using Kind = MappedSide::Kind;
  const bool are_mapped = now.kind != Kind::NotMapped && next.kind != Kind::NotMapped;
  return !are_mapped || now.address == next.address || now.kind == next.kind;
}

}  // namespace

bool may_take(const Node& node, const NodeWork& work) {
  return may_become(node.work.copies_from, work.copies_from) &&
         may_become(node.work.copies_to, work.copies_to);
}

void take(Node& node, NodeWork& work) {
  std::swap(node.work.operation, work.operation);
  node.work.context = work.context;
  node.work.copies_from.address = work.copies_from.address;
  node.work.copies_to.address = work.copies_to.address;
}

UpdateResult update_nodes(Graph& ours, const Graph& theirs) {
  Pairs pairs;
  const UpdateResult paired = pair_nodes(ours, theirs, pairs);
  if (paired.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return paired;
  for (const auto& [our, their] : pairs) {
    const CUgraphExecUpdateResult allowed = may_become(*our, *their);
    if (allowed != CU_GRAPH_EXEC_UPDATE_SUCCESS) return {allowed, their->handle()};
  }
  for (const auto& [our, their] : pairs) {
    NodeWork work = their->work;
    take(*our, work);
  }
  return {};
}

}  // namespace cuvmm::sim
