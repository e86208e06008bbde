// SPDX-License-Identifier: Apache-2.0
#include "stream/event_places.hpp"

namespace cuvmm {

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
  Group& group = group_of(event);
  const Holding holding{group.lock};
  if (group.recorded_unseen.contains(event)) return;
  group.places[event] = std::move(place);
  group.count();
}

void EventPlaces::recorded_unseen(CUevent event) {
  Group& group = group_of(event);
  const Holding holding{group.lock};
  group.recorded_unseen.insert(event);
  group.places.erase(event);
  group.count();
}

void EventPlaces::reached(CUevent event, const Place& place) {
  Group& group = group_of(event);
  const Holding holding{group.lock};
  const auto found = group.places.find(event);
  if (found == group.places.end() || found->second != place) return;
  group.places.erase(found);
  group.count();
}

void EventPlaces::forget_record(CUevent event) {
  if (!may_know(event)) return;
  Group& group = group_of(event);
  const Holding holding{group.lock};
  group.places.erase(event);
  group.count();
}

void EventPlaces::ended(CUevent event) {
  if (!may_know(event)) return;
  Group& group = group_of(event);
  const Holding holding{group.lock};
  group.recorded_unseen.erase(event);
  group.places.erase(event);
  group.count();
}

}  // namespace cuvmm
