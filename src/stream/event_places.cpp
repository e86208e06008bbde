// SPDX-License-Identifier: Apache-2.0
#include "stream/event_places.hpp"

namespace cuvmm {
namespace {

// `work(group)` under its lock; what is known there afterwards is counted.
template <class Group, class Work>
void change(Group& group, const Work& work) {
  const Holding holding{group.lock};
  work(group);
  group.count();
}

}  // namespace

void EventPlaces::Group::count() {
  known.store(places.size() + recorded_unseen.size(), std::memory_order_release);
}

EventPlaces::Place EventPlaces::look_up(CUevent event) const {
  const Group& group = group_of(event);
  const Holding holding{group.lock};
  const auto found = group.places.find(event);
  return found != group.places.end() ? found->second : Place{};
}

void EventPlaces::recorded(CUevent event, Place place) {
  if (place.empty()) return forget_record(event);
  change(group_of(event), [&](Group& group) {
    if (!group.recorded_unseen.contains(event)) group.places[event] = std::move(place);
  });
}

void EventPlaces::recorded_unseen(CUevent event) {
  change(group_of(event), [&](Group& group) {
    group.recorded_unseen.insert(event);
    group.places.erase(event);
  });
}

void EventPlaces::reached(CUevent event, const Place& place) {
  change(group_of(event), [&](Group& group) {
    const auto found = group.places.find(event);
    if (found != group.places.end() && found->second == place) group.places.erase(found);
  });
}

void EventPlaces::forget_record(CUevent event) {
  if (!may_know(event)) return;
  change(group_of(event), [&](Group& group) { group.places.erase(event); });
}

void EventPlaces::ended(CUevent event) {
  if (!may_know(event)) return;
  change(group_of(event), [&](Group& group) {
    group.recorded_unseen.erase(event);
    group.places.erase(event);
  });
}

}  // namespace cuvmm
