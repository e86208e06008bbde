// SPDX-License-Identifier: Apache-2.0
// Tracks the order of streams from the program's calls.
#include "stream/stream_clock.hpp"

#include <algorithm>
#include <mutex>

#include "driver/current_context.hpp"

namespace cuvmm {
namespace {

// The caller holds the lock of `later`.
void learn_one(StreamState& later, const FreeTicket& earlier) {
  std::vector<FreeTicket>& known = later.known;
  const auto same = std::find_if(known.begin(), known.end(), [&](const FreeTicket& other) {
    return other.stream == earlier.stream;
  });
  if (same == known.end()) {
    known.push_back(earlier);
  } else {
    same->tick = std::max(same->tick, earlier.tick);
  }
  later.knows_others.store(true, std::memory_order_release);
}

bool covers(const std::vector<FreeTicket>& known, const FreeTicket& ticket) {
  return std::any_of(known.begin(), known.end(), [&](const FreeTicket& other) {
    return other.stream == ticket.stream && other.tick >= ticket.tick;
  });
}

}  // namespace

bool StreamClock::is_done(const FreeTicket& freed) const {
  if (freed.is_for_anyone()) return true;
  const StreamState* state = table_.by_id(freed.stream);
  return state == nullptr || state->is_done(freed.tick);
}

bool StreamClock::was_waited_for(const FreeTicket& freed) const {
  if (freed.is_for_anyone()) return true;
  const StreamState* state = table_.by_id(freed.stream);
  return state == nullptr || state->waited_for.load(std::memory_order_acquire) >= freed.tick;
}

// Need not check the legacy rule: if it orders the asker after the free, the asker's Operation has
// added the free to `known` on construction.
bool StreamClock::is_before(const FreeTicket& freed, StreamId asker) const {
  if (freed.is_for_anyone() || freed.stream == asker) return true;
  StreamState* from = table_.by_id(freed.stream);
  if (from == nullptr || from->is_done(freed.tick)) return true;
  StreamState* to = table_.by_id(asker);
  if (to == nullptr || !to->knows_others.load(std::memory_order_acquire)) return false;
  const Holding holding{to->lock};
  return covers(to->known, freed);
}

bool StreamClock::is_across_barrier(const FreeTicket& freed, StreamId asker) const {
  if (is_done(freed)) return false;
  const StreamState* from = table_.by_id(freed.stream);
  const StreamState* to = table_.by_id(asker);
  return from != nullptr && to != nullptr && waits_for(*to, *from);
}

void StreamClock::learn(StreamState& later, const Place& earlier) {
  constexpr std::size_t many = 64;
  bool has_many = false;
  {
    const Holding holding{later.lock};
    for (const FreeTicket& ticket : earlier) {
      if (ticket.stream != later.id) learn_one(later, ticket);
    }
    has_many = later.known.size() > std::max(many, 2 * later.known_when_pruned);
  }
  if (has_many) prune_known(later);
}

// Perhaps nobody else asks about the streams of these frees, many of which may have ended.
void StreamClock::prune_known(StreamState& state) {
  for (const FreeTicket& ticket : known_of(state)) {
    if (StreamState* const freeing = table_.by_id(ticket.stream)) {
      poll(*freeing, PollEffort::Full);
    }
  }
  const std::size_t remaining = known_of(state).size();
  const Holding holding{state.lock};
  state.known_when_pruned = remaining;
}

void StreamClock::look(StreamId stream) {
  StreamState* state = table_.by_id(stream);
  if (state == nullptr || !state->has_unfinished()) return;
  poll(*state, PollEffort::Sparing);
  if (state->has_unfinished()) state->request_marks();
}

bool StreamClock::can_follow(const FreeTicket& freed, StreamId asker) const {
  if (program_.captures.may_live() || freed.stream == asker) return false;
  StreamState* from = table_.by_id(freed.stream);
  const StreamState* to = table_.by_id(asker);
  if (from == nullptr || to == nullptr || from->context != to->context) return false;
  if (from->context_ends.load()) return false;
  const Holding holding{from->lock};
  return std::any_of(from->marks.begin(), from->marks.end(),
                     [&](const Mark& mark) { return mark.is_exact && mark.tick == freed.tick; });
}

// Waits for cuvmm's event just as the program would wait for its own.
bool StreamClock::follow(const FreeTicket& freed, StreamId asker) {
  StreamState* from = table_.by_id(freed.stream);
  StreamState* to = table_.by_id(asker);
  if (from == nullptr || to == nullptr || from == to || to->ended.load()) return false;
  // Another context, and its events with it, may end during the driver's call, which may take long.
  if (from->context != to->context) return false;
  CUevent event = nullptr;
  {
    const Holding holding{from->lock};
    for (const Mark& mark : from->marks) {
      if (mark.is_exact && mark.tick == freed.tick) event = mark.events.front();
    }
    if (event == nullptr || from->context_ends.load()) return false;
    pin(*from, event);
  }
  CUresult answer = CUDA_ERROR_INVALID_CONTEXT;
  {
    const InContext in_context{driver_, to->context};
    const Captures::CaptureBlock held_off{program_.captures};
    if (in_context.ok() && held_off.none_lives()) {
      answer = driver_.cuStreamWaitEvent(to->handle, event, 0);
    }
  }
  unpin(*from, event);
  if (answer == CUDA_SUCCESS) learn(*to, {freed});
  return answer == CUDA_SUCCESS;
}

// Synchronizing or querying the legacy stream also covers the blocking streams of its context
// (measured).
Horizon StreamClock::horizon_of(StreamName name) {
  Horizon horizon{table_};
  StreamState* state = table_.find(name);
  if (state == nullptr) return horizon;
  horizon.add(*state);
  if (state->kind == StreamKind::Legacy) {
    table_.for_each_of(state->context, [&](StreamState& other) {
      if (waits_for(*state, other)) horizon.add(other);
    });
  }
  return horizon;
}

Horizon StreamClock::horizon_of(CUcontext context) {
  Horizon horizon{table_};
  table_.for_each_of(context, [&](StreamState& state) { horizon.add(state); });
  for (const FreeTicket& place : table_.ended_of(context)) horizon.add(place);
  return horizon;
}

// Drops entries that are done by now.
StreamClock::Place StreamClock::known_of(StreamState& state) {
  Place known;
  if (!state.knows_others.load(std::memory_order_acquire)) return known;
  {
    const Holding holding{state.lock};
    known = state.known;
  }
  const auto first_done = std::partition(
      known.begin(), known.end(), [&](const FreeTicket& ticket) { return !is_done(ticket); });
  if (first_done == known.end()) return known;
  const Place done(first_done, known.end());
  known.erase(first_done, known.end());
  const Holding holding{state.lock};
  std::erase_if(state.known, [&](const FreeTicket& ticket) {
    return std::find(done.begin(), done.end(), ticket) != done.end();
  });
  state.knows_others.store(!state.known.empty(), std::memory_order_release);
  return known;
}

StreamClock::Place StreamClock::place_of(StreamState& state) {
  Place place = known_of(state);
  if (state.has_unfinished()) place.push_back({state.id, state.tick.load()});
  if (state.kind != StreamKind::Legacy) return place;
  for (const FreeTicket& ticket : other_side_of(state)) place.push_back(ticket);
  return place;
}

StreamClock::Place StreamClock::place_on(StreamName name) {
  StreamState* state = table_.find(name);
  return state != nullptr ? place_of(*state) : Place{};
}

// The last unfinished frees on the streams that this one follows by the legacy rule. Excludes
// blocking streams that have ended.
StreamClock::Place StreamClock::other_side_of(const StreamState& stream) {
  Place place;
  table_.for_each_of(stream.context, [&](const StreamState& other) {
    if (waits_for(stream, other) && other.has_unfinished()) {
      place.push_back({other.id, other.tick.load()});
    }
  });
  return place;
}

void StreamClock::event_recorded(EventPlaces::Recording& recording, StreamName name, Place place) {
  if (!place.empty() && !may_be_recorded_unseen() && !is_capturing(name.handle))
    recording.done_at(std::move(place));
}

void StreamClock::waited_for_by(StreamName name, CUevent event,
                                const EventPlaces::Recorded& recorded) {
  if (recorded.place.empty() || may_be_recorded_unseen() || is_capturing(name.handle)) return;
  StreamState* state = table_.find(name);
  if (state != nullptr && events_.is_still(event, recorded)) learn(*state, recorded.place);
}

bool StreamClock::is_reached(CUevent event, const EventPlaces::Recorded& recorded,
                             StreamTable::Told told) {
  if (may_be_recorded_unseen() || !events_.is_still(event, recorded)) return false;
  table_.note_done(recorded.place, told);
  events_.reached(event, recorded);
  return true;
}

}  // namespace cuvmm
