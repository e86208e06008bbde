// SPDX-License-Identifier: Apache-2.0
#include "sched/order.hpp"

#include <algorithm>

namespace cuvmm {
namespace {

bool waits_for_legacy(StreamKind kind) {
  return kind == StreamKind::Blocking || kind == StreamKind::PerThread;
}

}  // namespace

void Order::note(Places& places, Place place) {
  for (Place& known : places) {
    if (known.lane != place.lane) continue;
    known = place;
    return;
  }
  std::erase_if(places, [](const Place& known) { return known.is_issued(); });
  places.push_back(place);
}

void Order::add(Places& after, const Places& places, const Lane* own) {
  for (const Place& place : places) {
    if (place.lane != own && !place.is_issued()) after.push_back(place);
  }
}

Order::Places Order::unissued(const Places& places) {
  Places found;
  add(found, places, nullptr);
  return found;
}

void Order::submitted(const Request& request, Place place, Places& after) {
  after.clear();
  if (request.stream != nullptr) order_stream(request, place, after);
  if (request.event_use != EventUse::None) order_event(request, place, after);
  note(contexts_[request.context].all, place);
  if (request.call == Call::cuGraphLaunch) note(graphs_, place);
}

void Order::order_stream(const Request& request, Place place, Places& after) {
  const StreamState& stream = *request.stream;
  Places& own = streams_[stream.id];
  add(after, own, place.lane);
  note(own, place);
  OfContext& context = contexts_[stream.context];
  if (stream.kind == StreamKind::Legacy) {
    add(after, context.blocking, place.lane);
    note(context.legacy, place);
  } else if (waits_for_legacy(stream.kind)) {
    add(after, context.legacy, place.lane);
    note(context.blocking, place);
  }
  if (stream.context != request.context) note(context.all, place);
}

// A wait means the record that was last when it was submitted. So a later record has to come after
// the wait as well.
void Order::order_event(const Request& request, Place place, Places& after) {
  OfEvent& event = events_[request.event];
  if (!event.record.is_issued() && event.record.lane != place.lane) after.push_back(event.record);
  if (request.event_use == EventUse::WaitsFor) {
    note(event.waits, place);
    return;
  }
  add(after, event.waits, place.lane);
  event.waits.clear();
  event.record = place;
  event.context = request.stream->context;
}

// The legacy stream stands for every stream that waits for it.
std::vector<Place> Order::of_stream(const StreamState& stream) const {
  Places found;
  const auto own = streams_.find(stream.id);
  if (own != streams_.end()) add(found, own->second, nullptr);
  const auto context = contexts_.find(stream.context);
  if (context != contexts_.end() && stream.kind == StreamKind::Legacy) {
    add(found, context->second.blocking, nullptr);
  }
  return found;
}

std::vector<Place> Order::before_work_on(const StreamState& stream) const {
  Places found = of_stream(stream);
  const auto context = contexts_.find(stream.context);
  if (context != contexts_.end() && waits_for_legacy(stream.kind)) {
    add(found, context->second.legacy, nullptr);
  }
  return found;
}

std::vector<Place> Order::of_event(CUevent event) const {
  const auto found = events_.find(event);
  return found == events_.end() ? Places{} : unissued({found->second.record});
}

std::vector<Place> Order::users_of(CUevent event) const {
  Places users = of_event(event);
  const auto found = events_.find(event);
  if (found != events_.end()) add(users, found->second.waits, nullptr);
  return users;
}

std::vector<Place> Order::of_context(CUcontext context) const {
  const auto found = contexts_.find(context);
  return found == contexts_.end() ? Places{} : unissued(found->second.all);
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
