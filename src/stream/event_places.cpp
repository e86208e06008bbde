// SPDX-License-Identifier: Apache-2.0
#include "stream/event_places.hpp"

namespace cuvmm {
namespace {

constexpr std::uint64_t one_under_way = 1;
constexpr std::uint64_t one_begun = std::uint64_t{1} << 32;

std::uint64_t under_way(std::uint64_t records) {
  return records & (one_begun - 1);
}
std::uint64_t begun(std::uint64_t records) {
  return records / one_begun;
}

// Runs `work(group)` under the group's lock and updates the group's count.
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

EventPlaces::Recorded EventPlaces::look_up(CUevent event) const {
  const Group& group = group_of(event);
  const Holding holding{group.lock};
  const auto found = group.places.find(event);
  return found != group.places.end() ? found->second : Recorded{};
}

bool EventPlaces::is_still(CUevent event, const Recorded& recorded) const {
  return !recorded.place.empty() && look_up(event).serial == recorded.serial;
}

// If one event is recorded twice concurrently, it is unknown which record the driver made last. The
// check covers the whole group: occasionally forgetting another event of the group is harmless.
EventPlaces::Recording::Recording(EventPlaces& places, CUevent event)
    : places_(places), event_(event) {
  Group& group = places_.group_of(event_);
  const std::uint64_t before = group.records.fetch_add(one_begun + one_under_way);
  if (under_way(before) == 0) begun_ = begun(before) + 1;
  if (!places_.may_know(event_)) return;
  change(group, [&](Group& known) { known.places.erase(event_); });
}

EventPlaces::Recording::~Recording() {
  Group& group = places_.group_of(event_);
  if (place_.empty()) {
    group.records.fetch_sub(one_under_way);
    return;
  }
  // Insert it before this record ends: a record that begins later then finds and erases it.
  change(group, [&](Group& known) {
    known.places[event_] = {std::move(place_), ++known.last_serial};
    known.count();
    const std::uint64_t before = known.records.fetch_sub(one_under_way);
    const bool was_alone = under_way(before) == 1 && begun_ != 0 && begun(before) == begun_;
    if (!was_alone || known.recorded_unseen.contains(event_)) known.places.erase(event_);
  });
}

void EventPlaces::recorded_unseen(CUevent event) {
  change(group_of(event), [&](Group& group) {
    group.recorded_unseen.insert(event);
    group.places.erase(event);
  });
}

void EventPlaces::reached(CUevent event, const Recorded& recorded) {
  change(group_of(event), [&](Group& group) {
    const auto found = group.places.find(event);
    if (found != group.places.end() && found->second.serial == recorded.serial) {
      group.places.erase(found);
    }
  });
}

void EventPlaces::ended(CUevent event) {
  if (!may_know(event)) return;
  change(group_of(event), [&](Group& group) {
    group.recorded_unseen.erase(event);
    group.places.erase(event);
  });
}

}  // namespace cuvmm
