// SPDX-License-Identifier: Apache-2.0
#include "sim/capture_state.hpp"

#include <algorithm>
#include <atomic>
#include <set>

#include "base/made_once.hpp"
#include "sim/context.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {
namespace {

std::atomic<int> live_count{0};

std::vector<std::shared_ptr<Capture>>& live() {
  static constinit MadeOnce<std::vector<std::shared_ptr<Capture>>> all;
  return all.get();
}

// The nodes and everything that they depend on.
std::set<const Node*> with_all_before(const Graph& graph, const CapturedStream& last) {
  std::vector<const Node*> open;
  std::set<const Node*> seen;
  for (const auto& node : graph.nodes) {
    const bool is_last =
        std::find(last.nodes.begin(), last.nodes.end(), node->handle()) != last.nodes.end();
    if (is_last && seen.insert(node.get()).second) open.push_back(node.get());
  }
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (const Edge& edge : node->before) {
      if (seen.insert(edge.node).second) open.push_back(edge.node);
    }
  }
  return seen;
}

}  // namespace

void CapturedStream::set(const std::vector<CUgraphNode>& next) {
  nodes = next;
  edges.assign(next.size(), CUgraphEdgeData{});
}

void CapturedStream::add(CUgraphNode node, const CUgraphEdgeData& edge) {
  if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) return;
  nodes.push_back(node);
  edges.push_back(edge);
}

std::shared_ptr<Capture> Capture::begin(Stream& stream, CUstreamCaptureMode mode,
                                        std::shared_ptr<Graph> graph, CapturedStream after) {
  static std::uint64_t last_id = 0;
  std::shared_ptr<Capture> capture{new Capture};
  capture->graph_ = std::move(graph);
  capture->graph_->is_captured_into = true;
  capture->mode_ = mode;
  capture->thread_ = std::this_thread::get_id();
  capture->origin_ = &stream;
  capture->id_ = ++last_id;
  capture->join(stream);
  CapturedStream& first = capture->of(stream);
  first.nodes = std::move(after.nodes);
  first.edges = std::move(after.edges);
  live().push_back(capture);
  live_count.store(static_cast<int>(live().size()));
  return capture;
}

std::shared_ptr<Capture> Capture::begin(Stream& stream, CUstreamCaptureMode mode) {
  auto graph = std::make_shared<Graph>();
  graph->publish();
  auto capture = begin(stream, mode, std::move(graph), {});
  capture->into_given_graph_ = false;
  return capture;
}

bool Capture::touches(const Context& context, bool only_blocking) const {
  return std::any_of(streams_.begin(), streams_.end(), [&](const auto& entry) {
    const CapturedStream& stream = entry.second;
    return stream.context.lock().get() == &context && (!only_blocking || stream.is_blocking);
  });
}

void Capture::join(Stream& stream) {
  forget(stream);  // an earlier stream at the same address
  stream.capture = shared_from_this();
  CapturedStream joined;
  joined.context = stream.context;
  joined.is_blocking = stream.is_blocking();
  streams_[&stream] = std::move(joined);
}

void Capture::forget(const Stream& stream) {
  const auto found = streams_.find(&stream);
  if (found == streams_.end()) return;
  gone_.push_back(std::move(found->second));
  streams_.erase(found);
}

Node& Capture::add(Stream& stream, NodeWork work) {
  CapturedStream& last = of(stream);
  Node& node = graph_->add(std::move(work));
  for (std::size_t i = 0; i < last.nodes.size(); ++i) {
    // The program may have destroyed the node since.
    const auto before = graph_nodes().find(last.nodes[i]);
    if (before != nullptr && before->graph == graph_.get()) {
      graph_->connect(*before, node, last.edges[i]);
    }
  }
  last.set({node.handle()});
  return node;
}

bool Capture::is_joined() const {
  const auto origin = streams_.find(origin_);
  if (origin == streams_.end()) return false;
  const std::set<const Node*> joined = with_all_before(*graph_, origin->second);
  const auto is_part = [&](const CapturedStream& stream) {
    return std::all_of(stream.nodes.begin(), stream.nodes.end(), [&](CUgraphNode handle) {
      const auto node = graph_nodes().find(handle);
      return node == nullptr || joined.count(node.get()) != 0;
    });
  };
  return std::all_of(streams_.begin(), streams_.end(),
                     [&](const auto& entry) { return is_part(entry.second); }) &&
         std::all_of(gone_.begin(), gone_.end(), is_part);
}

std::shared_ptr<Graph> Capture::end() {
  ended_ = true;
  graph_->is_captured_into = false;
  std::erase_if(live(), [this](const auto& known) { return known.get() == this; });
  live_count.store(static_cast<int>(live().size()));
  return std::move(graph_);  // events that remember the capture must not keep it
}

std::shared_ptr<Capture> capture_of(const Stream& stream) {
  return stream.capture == nullptr || stream.capture->has_ended() ? nullptr : stream.capture;
}

std::vector<std::shared_ptr<Capture>> live_captures() {
  return live();
}

bool is_anything_captured() {
  return live_count.load() != 0;
}

}  // namespace cuvmm::sim
