// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>
#include <vector>

#include "sched/lane.hpp"

namespace cuvmm {

// What is submitted and not issued, seen by streams, events and contexts: from it follows what an
// operation has to be issued after. Lanes keep the order of their own; this keeps the order between
// lanes, and tells who waits for a stream or an event what he has to wait for.
//
// The driver sees calls in the order in which they are issued, and orders the work itself. So all
// that is needed is that the order of issue agrees with the order of submission wherever the driver
// would see a difference. Not for several threads at once.
class Order {
 public:
  // The operation is submitted now. What it has to be issued after, of other lanes.
  void submitted(const Request& request, QueuePosition position, std::vector<QueuePosition>& after);

  // What has to be issued before a call that is made past the lanes, or before a wait.
  std::vector<QueuePosition> of_stream(const StreamState& stream) const;
  std::vector<QueuePosition> before_work_on(const StreamState& stream) const;
  std::vector<QueuePosition> of_event(CUevent event) const;  // its last record
  std::vector<QueuePosition> users_of(CUevent event) const;  // that, and who waits for it
  std::vector<QueuePosition> of_context(CUcontext context) const;
  // Graph launches, which may record events that nobody sees.
  std::vector<QueuePosition> of_graphs() const { return unissued(graphs_); }

  // Recorded by a call that was made past the lanes.
  void recorded_directly(CUevent event, CUcontext context);
  // The context that it is of; nullptr where it is not known, or the event is shared.
  CUcontext context_of(CUevent event) const;
  void event_began(CUevent event, CUcontext context);
  void event_is_shared(CUevent event);
  void event_ended(CUevent event) { events_.erase(event); }
  void stream_ended(const StreamState& stream) { streams_.erase(stream.id); }
  void context_ended(CUcontext context);

 private:
  using QueuePositions = std::vector<QueuePosition>;  // at most one a lane: its latest

  struct OfEvent {
    CUcontext context = nullptr;
    bool is_shared = false;
    QueuePosition record;
    QueuePositions waits;  // for that record
  };
  struct OfContext {
    QueuePositions legacy;    // work of the legacy stream
    QueuePositions blocking;  // work of streams that wait for it
    QueuePositions all;
  };

  static void note(QueuePositions& positions, QueuePosition position);
  static void add(QueuePositions& after, const QueuePositions& positions, const Lane* own);
  static QueuePositions unissued(const QueuePositions& positions);
  void order_stream(const Request& request, QueuePosition position, QueuePositions& after);
  void order_event(const Request& request, QueuePosition position, QueuePositions& after);

  std::unordered_map<StreamId, QueuePositions> streams_;
  std::unordered_map<CUevent, OfEvent> events_;
  std::unordered_map<CUcontext, OfContext> contexts_;
  QueuePositions graphs_;
};

}  // namespace cuvmm
