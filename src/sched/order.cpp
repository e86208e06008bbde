// SPDX-License-Identifier: Apache-2.0
#include "sched/order.hpp"

namespace cuvmm {
namespace {

bool waits_for_legacy(StreamKind kind) {
  return kind == StreamKind::Blocking || kind == StreamKind::PerThread;
}

}  // namespace

void Order::note(QueuePositions& positions, QueuePosition position) {
  for (QueuePosition& known : positions) {
    if (known.lane != position.lane) continue;
    known = position;
    return;
  }
  std::erase_if(positions, [](const QueuePosition& known) { return known.is_issued(); });
  positions.push_back(position);
}

void Order::add(QueuePositions& after, const QueuePositions& positions, const Lane* own) {
  for (const QueuePosition& position : positions) {
    if (position.lane != own && !position.is_issued()) after.push_back(position);
  }
}

Order::QueuePositions Order::unissued(const QueuePositions& positions) {
  QueuePositions found;
  add(found, positions, nullptr);
  return found;
}

void Order::submitted(const Request& request, QueuePosition position, QueuePositions& after) {
  after.clear();
  if (request.stream != nullptr) order_stream(request, position, after);
  if (request.event_use != EventUse::None) order_event(request, position, after);
  note(contexts_[request.context].all, position);
  if (request.call == Call::cuGraphLaunch) note(graphs_, position);
  if (request.graph != nullptr) order_launch(request.graph, position, after);
}

void Order::order_launch(CUgraphExec graph, QueuePosition position, QueuePositions& after) {
  QueuePositions& launches = launches_[graph];
  add(after, launches, position.lane);
  note(launches, position);
}

void Order::order_stream(const Request& request, QueuePosition position, QueuePositions& after) {
  const StreamState& stream = *request.stream;
  QueuePositions& own = streams_[stream.id];
  add(after, own, position.lane);
  note(own, position);
  OfContext& context = contexts_[stream.context];
  if (stream.kind == StreamKind::Legacy) {
    add(after, context.blocking, position.lane);
    note(context.legacy, position);
  } else if (waits_for_legacy(stream.kind)) {
    add(after, context.legacy, position.lane);
    note(context.blocking, position);
  }
  if (stream.context != request.context) note(context.all, position);
}

// A wait refers to the last record at the time of its submission, so a later record must come after
// the wait.
void Order::order_event(const Request& request, QueuePosition position, QueuePositions& after) {
  OfEvent& event = events_[request.event];
  if (!event.record.is_issued() && event.record.lane != position.lane)
    after.push_back(event.record);
  if (request.event_use == EventUse::WaitsFor) {
    note(event.waits, position);
    return;
  }
  add(after, event.waits, position.lane);
  event.waits.clear();
  event.record = position;
  event.context = request.stream->context;
}

// The legacy stream includes the work of every stream that synchronizes with it.
std::vector<QueuePosition> Order::of_stream(const StreamState& stream) const {
  QueuePositions found = streams_.unissued_of(stream.id);
  const auto context = contexts_.find(stream.context);
  if (context != contexts_.end() && stream.kind == StreamKind::Legacy) {
    add(found, context->second.blocking, nullptr);
  }
  return found;
}

std::vector<QueuePosition> Order::before_work_on(const StreamState& stream) const {
  QueuePositions found = of_stream(stream);
  const auto context = contexts_.find(stream.context);
  if (context != contexts_.end() && waits_for_legacy(stream.kind)) {
    add(found, context->second.legacy, nullptr);
  }
  return found;
}

std::vector<QueuePosition> Order::of_event(CUevent event) const {
  const auto found = events_.find(event);
  return found == events_.end() ? QueuePositions{} : unissued({found->second.record});
}

std::vector<QueuePosition> Order::users_of(CUevent event) const {
  QueuePositions users = of_event(event);
  const auto found = events_.find(event);
  if (found != events_.end()) add(users, found->second.waits, nullptr);
  return users;
}

std::vector<QueuePosition> Order::of_context(CUcontext context) const {
  const auto found = contexts_.find(context);
  return found == contexts_.end() ? QueuePositions{} : unissued(found->second.all);
}

void Order::recorded_directly(CUevent event, CUcontext context) {
  OfEvent& known = events_[event];
  known.record = {};
  known.waits.clear();
  known.context = known.is_shared ? nullptr : context;
}

CUcontext Order::context_of(CUevent event) const {
  const auto found = events_.find(event);
  return found == events_.end() ? nullptr : found->second.context;
}

void Order::event_began(CUevent event, CUcontext context) {
  events_[event] = {};
  events_[event].context = context;
}

void Order::event_is_shared(CUevent event) {
  events_[event].is_shared = true;
  events_[event].context = nullptr;
}

void Order::context_ended(CUcontext context) {
  contexts_.erase(context);
  std::erase_if(events_, [&](const auto& known) { return known.second.context == context; });
}

}  // namespace cuvmm
