// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_clock.hpp"

#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "driver/current_context.hpp"

namespace cuvmm {
namespace {

// Under the lock of `later`.
void learn(StreamState& later, const FreeTicket& earlier) {
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

// Polling costs little while the wait is short, and leaves the processor alone while it is long.
class Patience {
 public:
  void rest() {
    usleep(length_);
    length_ = std::min(length_ * 2, longest);
  }

 private:
  static constexpr useconds_t longest = 200;
  useconds_t length_ = 5;
};

}  // namespace

bool StreamClock::is_done(const FreeTicket& freed) const {
  if (freed.is_for_anyone()) return true;
  const StreamState* state = table_.by_id(freed.stream);
  return state == nullptr || state->is_done(freed.tick);
}

bool StreamClock::is_before(const FreeTicket& freed, StreamId asker) const {
  if (freed.is_for_anyone() || freed.stream == asker) return true;
  StreamState* from = table_.by_id(freed.stream);
  if (from == nullptr || from->is_done(freed.tick)) return true;
  StreamState* to = table_.by_id(asker);
  if (to == nullptr) return false;
  if (!from->ended.load() && waits_for(*to, *from)) return true;
  const Holding holding{to->lock};
  return covers(to->known, freed);
}

bool StreamClock::is_capturing(CUstream handle) const {
  if (!captures_.any()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult answer = driver_.cuStreamIsCapturing(handle, &status);
  return answer != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// A mark on the legacy stream would be an implicit dependency of any captured blocking stream, and
// break its capture.
bool StreamClock::record_on(StreamState& state, CUstream handle, Mark& mark) {
  const Captures::HeldOff held_off{captures_};
  if (!held_off.none_lives() && (handle == CU_STREAM_LEGACY || is_capturing(handle))) return false;
  CUevent event = nullptr;
  if (!state.spare_events.empty()) {
    event = state.spare_events.back();
    state.spare_events.pop_back();
  } else if (driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    return false;
  }
  if (driver_.cuEventRecord(event, handle) != CUDA_SUCCESS) {
    state.spare_events.push_back(event);
    return false;
  }
  mark.events.push_back(event);
  return true;
}

// A thread's own stream cannot be named by another thread. But the legacy stream waits for it.
bool StreamClock::record_mark(StreamState& state, const std::vector<StreamState*>& streams,
                              Mark& mark) {
  if (state.kind == StreamKind::PerThread) return record_on(state, CU_STREAM_LEGACY, mark);
  if (state.kind != StreamKind::Everything) return record_on(state, state.handle, mark);
  if (!record_on(state, CU_STREAM_LEGACY, mark)) return false;
  return std::all_of(streams.begin(), streams.end(), [&](StreamState* stream) {
    return stream->kind != StreamKind::NonBlocking || record_on(state, stream->handle, mark);
  });
}

// The tick is read first: what is freed while the mark is made may lie behind it, or on a stream
// that is not among those that are marked.
void StreamClock::mark(StreamState& state) {
  const StreamTable::Staying staying{table_};
  if (state.ended.load() || state.context_ends.load()) return;
  const InContext in_context{driver_, state.context};
  if (!in_context.ok()) return;
  const RelaxedCapture relaxed{driver_};
  Mark mark{.tick = state.tick.load(std::memory_order_acquire), .events = {}};
  std::vector<StreamState*> streams;
  if (state.kind == StreamKind::Everything) streams = table_.of_context(state.context);
  const Holding holding{state.lock};
  const std::uint64_t marked = state.marks.empty() ? state.done.load() : state.marks.back().tick;
  if (marked >= mark.tick) return;
  if (record_mark(state, streams, mark)) {
    mark.events.insert(mark.events.end(), state.left_behind.begin(), state.left_behind.end());
    state.left_behind.clear();
    state.marks.push_back(std::move(mark));
  } else {
    let_go(state, mark);
  }
}

// The work that a stream leaves behind belongs to all the work of its context, and no later mark
// finds the stream any more. Also for what is freed from now on only.
void StreamClock::leave_behind(const StreamState& stream) {
  StreamState& all = table_.everything_of(stream.context);
  const InContext in_context{driver_, stream.context};
  if (!in_context.ok()) return;
  const RelaxedCapture relaxed{driver_};
  // What was captured does not run, and to ask for it would end the capture.
  if (is_capturing(stream.handle)) return;
  const Holding holding{all.lock};
  // Else they would be as many as streams ever ended where nobody asks for a mark.
  const auto is_over = [&](CUevent event) {
    if (driver_.cuEventQuery(event) != CUDA_SUCCESS) return false;
    all.spare_events.push_back(event);
    return true;
  };
  std::erase_if(all.left_behind, is_over);
  Mark last;
  if (!record_on(all, stream.handle, last) && !record_on(all, stream.handle, last)) {
    driver_.cuStreamSynchronize(stream.handle);
    return;
  }
  all.left_behind.insert(all.left_behind.end(), last.events.begin(), last.events.end());
}

bool StreamClock::ended_streams_run(CUcontext context) {
  StreamState& all = table_.everything_of(context);
  const InContext in_context{driver_, context};
  if (!in_context.ok()) return true;
  const RelaxedCapture relaxed{driver_};
  const auto has_run = [&](CUevent event) { return driver_.cuEventQuery(event) == CUDA_SUCCESS; };
  const Holding holding{all.lock};
  const auto have_run = [&](const std::vector<CUevent>& events) {
    return std::all_of(events.begin(), events.end(), has_run);
  };
  return !have_run(all.left_behind) ||
         !std::all_of(all.marks.begin(), all.marks.end(),
                      [&](const Mark& mark) { return have_run(mark.events); });
}

void StreamClock::let_go(StreamState& state, Mark& mark) {
  for (CUevent event : mark.events) {
    if (state.ended.load()) {
      driver_.cuEventDestroy(event);
    } else {
      state.spare_events.push_back(event);
    }
  }
  mark.events.clear();
}

void StreamClock::poll(StreamState& state) {
  const StreamTable::Staying staying{table_};
  if (state.context_ends.load()) return;
  const InContext in_context{driver_, state.context};
  if (!in_context.ok()) return;
  const RelaxedCapture relaxed{driver_};
  const Holding holding{state.lock};
  while (!state.marks.empty()) {
    Mark& next = state.marks.front();
    const bool happened = std::all_of(next.events.begin(), next.events.end(), [&](CUevent event) {
      return driver_.cuEventQuery(event) == CUDA_SUCCESS;
    });
    if (!happened) return;
    state.advance(next.tick);
    let_go(state, next);
    state.marks.pop_front();
  }
}

void StreamClock::look(StreamId stream) {
  StreamState* state = table_.by_id(stream);
  if (state == nullptr || !state->has_unfinished()) return;
  mark(*state);
  poll(*state);
}

// The events of our own marks are waited for as the program would do it with events of its own.
bool StreamClock::follow(StreamId stream, StreamId asker) {
  StreamState* from = table_.by_id(stream);
  StreamState* to = table_.by_id(asker);
  if (from == nullptr || to == nullptr || from == to || to->ended.load()) return false;
  const FreeTicket last{stream, from->tick.load(std::memory_order_acquire)};
  if (is_before(last, asker)) return false;
  mark(*from);
  const InContext in_context{driver_, to->context};
  if (!in_context.ok()) return false;
  const Captures::HeldOff held_off{captures_};
  if (!held_off.none_lives()) return false;
  {
    const Holding holding{from->lock};
    if (from->is_done(last.tick)) return true;
    if (from->marks.empty() || from->marks.back().tick < last.tick) return false;
    for (CUevent event : from->marks.back().events) {
      if (driver_.cuStreamWaitEvent(to->handle, event, 0) != CUDA_SUCCESS) return false;
    }
  }
  const Holding holding{to->lock};
  learn(*to, last);
  return true;
}

bool StreamClock::wait(const FreeTicket& freed, std::uint64_t until) {
  Patience patience;
  while (true) {
    look(freed.stream);
    if (is_done(freed)) return true;
    if (now_ns() >= until) return false;
    patience.rest();
  }
}

bool StreamClock::wait_for_all(CUcontext context, std::uint64_t until) {
  return wait(ticket_of_all(context), until);
}

bool StreamClock::wait_for_everything(std::uint64_t until) {
  const auto contexts = table_.everything_of_all();
  return std::all_of(contexts.begin(), contexts.end(),
                     [&](StreamState* context) { return wait(context->ticket(), until); });
}

bool StreamClock::wait_for_frees(int device, std::uint64_t until) {
  bool learnt = false;
  for (StreamState* state : table_.with_unfinished(device)) {
    if (wait({state->id, state->tick.load()}, until)) learnt = true;
  }
  return learnt;
}

void StreamClock::mark_pending(StreamName name) {
  StreamState* state = table_.find(name);
  if (state != nullptr && state->has_unfinished()) mark(*state);
}

void StreamClock::stream_ends(CUstream handle) {
  StreamState* state = table_.find({.handle = handle});
  if (state == nullptr || state->kind > StreamKind::NonBlocking) return;
  const std::uint64_t last = state->tick.load(std::memory_order_acquire);
  if (state->has_unfinished()) mark(*state);
  const auto is_marked = [&] {
    const Holding holding{state->lock};
    return state->is_done(last) || (!state->marks.empty() && state->marks.back().tick >= last);
  };
  // Where no event can be had, nobody could know later when its work is done.
  if (!is_marked() && driver_.cuStreamSynchronize(handle) == CUDA_SUCCESS) state->advance(last);
  leave_behind(*state);
  table_.stream_ended(handle);
  // Nobody says that the legacy stream still waits for a stream that is gone, so it is told to.
  const InContext in_context{driver_, state->context};
  if (state->kind != StreamKind::Blocking || !state->has_unfinished() || !in_context.ok()) return;
  const StreamState* legacy = table_.find({.handle = CU_STREAM_LEGACY});
  if (legacy != nullptr) follow(state->id, legacy->id);
}

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

// What is done by now need not be known any longer.
StreamClock::Place StreamClock::known_of(StreamState& state) {
  Place known;
  if (!state.knows_others.load(std::memory_order_acquire)) return known;
  {
    const Holding holding{state.lock};
    known = state.known;
  }
  Place done;
  std::erase_if(known, [&](const FreeTicket& ticket) {
    if (!is_done(ticket)) return false;
    done.push_back(ticket);
    return true;
  });
  if (done.empty()) return known;
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
  table_.for_each_of(state.context, [&](const StreamState& other) {
    if (waits_for(state, other) && other.has_unfinished()) {
      place.push_back({other.id, other.tick.load()});
    }
  });
  return place;
}

StreamClock::Place StreamClock::place_on(StreamName name) {
  StreamState* state = table_.find(name);
  return state != nullptr ? place_of(*state) : Place{};
}

void StreamClock::note_record(CUevent event, StreamName name, Place place) {
  if (is_capturing(name.handle)) return events_.forget_record(event);
  events_.recorded(event, std::move(place));
}

void StreamClock::waited_for_by(StreamName name, const Place& place) {
  if (place.empty() || is_capturing(name.handle)) return;
  StreamState* state = table_.find(name);
  if (state == nullptr) return;
  const Holding holding{state->lock};
  for (const FreeTicket& ticket : place) {
    if (ticket.stream != state->id) learn(*state, ticket);
  }
}

bool StreamClock::is_reached(CUevent event, const Place& place) {
  if (place.empty()) return false;
  table_.note_done(place, StreamTable::Told::ByTheDevice);
  events_.reached(event, place);
  return true;
}

}  // namespace cuvmm
