// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "sim/graph.hpp"

namespace cuvmm::sim {

struct Stream;

// The dependencies of the next node of a captured stream.
struct CapturedStream {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;  // one per node
  std::weak_ptr<Context> context;
  bool is_blocking = false;

  void set(const std::vector<CUgraphNode>& next);
  void add(CUgraphNode node, const CUgraphEdgeData& edge);
};

// A sequence of captured work: it begins on one stream and spreads to streams that wait for its
// events. Guarded by graph_lock().
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  // Captures into `graph`, after the nodes in `after`.
  static std::shared_ptr<Capture> begin(Stream& stream, CUstreamCaptureMode mode,
                                        std::shared_ptr<Graph> graph, CapturedStream after);
  // Captures into a new graph.
  static std::shared_ptr<Capture> begin(Stream& stream, CUstreamCaptureMode mode);

  const std::shared_ptr<Graph>& graph() const { return graph_; }
  std::uint64_t id() const { return id_; }
  CUstreamCaptureMode mode() const { return mode_; }
  bool is_of_this_thread() const { return thread_ == std::this_thread::get_id(); }
  bool is_origin(const Stream& stream) const { return origin_ == &stream; }
  // Whether the graph existed before, and so remains even if the capture fails.
  bool is_into_given_graph() const { return into_given_graph_; }
  bool is_valid() const { return valid_; }
  bool has_ended() const { return ended_; }
  void invalidate() { valid_ = false; }

  // Whether it includes streams (or only blocking streams) of this context.
  bool touches(const Context& context, bool only_blocking) const;

  void join(Stream& stream);
  CapturedStream& of(const Stream& stream) { return streams_.at(&stream); }
  // Called when the stream is destroyed. Its work must still be joined.
  void forget(const Stream& stream);

  // Adds a node after the stream's last work.
  Node& add(Stream& stream, NodeWork work);

  bool is_joined() const;
  // Ends the capture of all its streams and gives the graph to the caller.
  std::shared_ptr<Graph> end();

 private:
  Capture() = default;
  std::shared_ptr<Graph> graph_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread_;
  const Stream* origin_ = nullptr;
  std::uint64_t id_ = 0;
  bool into_given_graph_ = true;
  bool valid_ = true;
  bool ended_ = false;
  std::map<const Stream*, CapturedStream> streams_;
  std::vector<CapturedStream> gone_;
};

// Returns nullptr if the stream is not captured.
std::shared_ptr<Capture> capture_of(const Stream& stream);
// All captures that have not ended.
std::vector<std::shared_ptr<Capture>> live_captures();
bool is_anything_captured();

}  // namespace cuvmm::sim
