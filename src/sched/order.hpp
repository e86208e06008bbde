// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "sched/lane.hpp"

namespace cuvmm {

// Tracks submitted but unissued operations by stream, event and context, to determine what each
// operation must be issued after. A lane keeps the order of its own operations; this keeps the
// order between lanes, and tells waiters for a stream or an event which operations to wait for.
//
// The driver sees calls in the order of issue, and orders the work itself. So the order of issue
// need only agree with the order of submission where the driver would see a difference. Not
// thread-safe.
class Order {
 public:
  // Registers an operation as submitted. `after` receives the operations of other lanes that must
  // be issued before it.
  void submitted(const Request& request, QueuePosition position, std::vector<QueuePosition>& after);

  // The operations to issue before a call that bypasses the lanes, or before a wait.
  std::vector<QueuePosition> of_stream(const StreamState& stream) const;
  std::vector<QueuePosition> before_work_on(const StreamState& stream) const;
  std::vector<QueuePosition> of_event(CUevent event) const;  // its last record
  std::vector<QueuePosition> users_of(CUevent event) const;  // its last record and its waits
  std::vector<QueuePosition> of_context(CUcontext context) const;
  std::vector<QueuePosition> launches_of(CUgraphExec graph) const {
    return launches_.unissued_of(graph);
  }
  // Graph launches: they may record events without cuvmm seeing it.
  std::vector<QueuePosition> of_graphs() const { return unissued(graphs_); }

  // Recorded by a call that bypassed the lanes.
  void recorded_directly(CUevent event, CUcontext context);
  // The event's context; nullptr if it is unknown or the event is shared.
  CUcontext context_of(CUevent event) const;
  void event_began(CUevent event, CUcontext context);
  void event_is_shared(CUevent event);
  void event_ended(CUevent event) { events_.erase(event); }
  void stream_ended(const StreamState& stream) { streams_.erase(stream.id); }
  void context_ended(CUcontext context);

 private:
  using QueuePositions = std::vector<QueuePosition>;  // at most one per lane: the latest

  struct OfEvent {
    CUcontext context = nullptr;
    bool is_shared = false;
    QueuePosition record;
    QueuePositions waits;  // for that record
  };
  struct OfContext {
    QueuePositions legacy;    // work on the legacy stream
    QueuePositions blocking;  // work on streams that synchronize with it
    QueuePositions all;
  };

  // The latest operations by key. Keys end unseen: streams with their context or thread, graphs
  // when they are destroyed, after which their handles may be reused once their last launch is
  // issued. Nothing need come after issued work, so when the map has doubled, keys without unissued
  // operations go.
  template <typename Key>
  class ByKey {
   public:
    QueuePositions& operator[](Key key) {
      if (known_.size() >= forget_at_) {
        std::erase_if(known_, [](const auto& known) { return unissued(known.second).empty(); });
        forget_at_ = std::max(few, 2 * known_.size());
      }
      return known_[key];
    }
    QueuePositions unissued_of(Key key) const {
      const auto found = known_.find(key);
      return found == known_.end() ? QueuePositions{} : unissued(found->second);
    }
    void erase(Key key) { known_.erase(key); }

   private:
    static constexpr std::size_t few = 64;
    std::unordered_map<Key, QueuePositions> known_;
    std::size_t forget_at_ = few;
  };

  static void note(QueuePositions& positions, QueuePosition position);
  static void add(QueuePositions& after, const QueuePositions& positions, const Lane* own);
  static QueuePositions unissued(const QueuePositions& positions);
  void order_stream(const Request& request, QueuePosition position, QueuePositions& after);
  void order_event(const Request& request, QueuePosition position, QueuePositions& after);
  void order_launch(CUgraphExec graph, QueuePosition position, QueuePositions& after);

  ByKey<StreamId> streams_;
  std::unordered_map<CUevent, OfEvent> events_;
  std::unordered_map<CUcontext, OfContext> contexts_;
  ByKey<CUgraphExec> launches_;
  QueuePositions graphs_;
};

}  // namespace cuvmm
