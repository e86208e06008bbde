// SPDX-License-Identifier: Apache-2.0
// cuvmm's events in the streams' work: where they are recorded, and what their queries reveal.
#include <algorithm>
#include <mutex>
#include <optional>

#include "driver/current_context.hpp"
#include "stream/stream_clock.hpp"

namespace cuvmm {

// Records an event of `owner` on `handle`. The caller has made the owner's context current.
CUresult StreamClock::record_event(StreamState& owner, CUstream handle, CUevent& event) {
  CUevent taken = take_event(owner);
  if (taken == nullptr) {
    const CUresult made = driver_.cuEventCreate(&taken, CU_EVENT_DISABLE_TIMING);
    if (made != CUDA_SUCCESS) return made;
  }
  const CUresult recorded = driver_.cuEventRecord(taken, handle);
  if (recorded == CUDA_SUCCESS) {
    event = taken;
  } else {
    give_back_event(owner, taken);
  }
  return recorded;
}

CUresult StreamClock::record_operation(StreamState& stream, CUevent& event) {
  const InContext in_context{driver_, stream.context};
  if (!in_context.ok()) return in_context.answer();
  const RelaxedCapture relaxed{driver_};
  return record_event(stream, stream.handle, event);
}

// Returns false, recording nothing, if the event could break a live capture: on a captured stream
// it would, and on the legacy stream it would if a blocking stream is captured.
bool StreamClock::record_on(StreamState& state, CUstream handle, Mark& mark) {
  const Captures::CaptureBlock held_off{program_.captures};
  if (!held_off.none_lives() && (handle == CU_STREAM_LEGACY || is_capturing(handle))) return false;
  CUevent event = nullptr;
  if (record_event(state, handle, event) != CUDA_SUCCESS) return false;
  mark.events.push_back(event);
  return true;
}

CUevent StreamClock::take_event(StreamState& state) {
  {
    const Holding holding{state.lock};
    if (!state.spare_events.empty()) {
      const CUevent event = state.spare_events.back();
      state.spare_events.pop_back();
      return event;
    }
  }
  return table_.spare_event_of(state.context);
}

void StreamClock::give_back_event(StreamState& state, CUevent event) {
  const Holding holding{state.lock};
  state.spare_events.push_back(event);
}

void StreamClock::add_mark(StreamState& state, Mark mark) {
  bool has_many = false;
  {
    const Holding holding{state.lock};
    has_many = push_mark(state, std::move(mark));
  }
  if (has_many) thin_out_marks(state);
}

// Takes a ticket for a free, and adds the mark that was recorded for it. The mark's event comes
// after every free up to the mark's tick, and after this one too if no other thread has freed on
// the stream in between. A thread that sees the free in the stream's tick must also find its
// barrier: a query of the stream does not cover that.
FreeTicket StreamClock::add_free(StreamState& state, Mark mark) {
  FreeTicket ticket;
  bool has_many = false;
  {
    const Holding holding{state.lock};
    has_many = push_mark(state, std::move(mark));
    ticket = state.ticket();
    Mark& added = state.marks.back();
    added.is_exact = ticket.tick == added.tick + 1;
    if (added.is_exact) added.tick = ticket.tick;
  }
  if (has_many) thin_out_marks(state);
  return ticket;
}

constexpr std::size_t most_marks = 64;

// The caller holds the state's lock. Returns whether the stream has too many marks now.
bool StreamClock::push_mark(StreamState& state, Mark mark) {
  const bool is_barrier = mark.is_barrier;
  const std::uint64_t epoch = mark.epoch;
  state.marks.push_back(std::move(mark));
  if (is_barrier) {
    state.has_barrier.store(true, std::memory_order_release);
    // Not before: operations of other threads rely on finding the barrier.
    state.has_barrier_of(epoch);
  }
  state.has_marks.store(true, std::memory_order_relaxed);
  return state.marks.size() > most_marks;
}

// Caps the marks of a stream that is never queried. Above the cap, drops every second mark: the
// mark after it covers the same frees, but completes later.
void StreamClock::thin_out_marks(StreamState& state) {
  poll(state, PollEffort::Full);
  const Holding holding{state.lock};
  if (state.marks.size() <= most_marks) return;
  const Mark* const last_barrier = state.last_barrier();
  std::deque<Mark> kept;
  bool keeps = true;
  for (Mark& one : state.marks) {
    const bool is_last = &one == &state.marks.back();
    if (keeps || is_last || &one == last_barrier) {
      kept.push_back(std::move(one));
    } else {
      retire(state, one);
    }
    keeps = !keeps;
  }
  state.marks = std::move(kept);
}

// The caller holds the state's lock. An event that another thread is passing to the driver is not
// reused yet.
void StreamClock::retire(StreamState& state, Mark& mark) {
  for (CUevent event : mark.events) {
    if (std::find(state.pinned_events.begin(), state.pinned_events.end(), event) !=
        state.pinned_events.end()) {
      state.retired_events.push_back(event);
    } else {
      state.spare_events.push_back(event);
    }
  }
  mark.events.clear();
}

// Not on the legacy stream, where an event would make other streams wait for each other.
void StreamClock::mark_own(StreamId asker) {
  StreamState* state = table_.by_id(asker);
  if (state == nullptr || state->kind == StreamKind::Legacy) return;
  if (state->has_unfinished()) record_own_mark(*state);
}

void StreamClock::record_own_mark(StreamState& state) {
  const std::uint64_t tick = state.tick.load(std::memory_order_acquire);
  {
    const Holding holding{state.lock};
    if (state.is_done(tick)) return;
    if (!state.marks.empty() && state.marks.back().tick >= tick) return;
  }
  CUevent event = nullptr;
  if (record_operation(state, event) == CUDA_SUCCESS) {
    add_mark(state, {.tick = tick, .events = {event}, .is_exact = false});
  }
}

void StreamClock::poll(StreamState& state, PollEffort zeal) {
  constexpr int patient_polls = 4;
  constexpr int seldom = 8;
  const StreamTable::Staying staying{table_};
  if (state.context_ends.load()) return;
  const Holding holding{state.lock};
  if (state.marks.empty()) return;
  if (zeal == PollEffort::Sparing && state.fruitless_polls++ >= patient_polls &&
      state.fruitless_polls % seldom != 0) {
    return;
  }
  const InContext in_context{driver_, state.context};
  if (!in_context.ok()) return;
  const RelaxedCapture relaxed{driver_};
  while (!state.marks.empty()) {
    Mark& next = state.marks.front();
    const bool happened = std::all_of(next.events.begin(), next.events.end(), [&](CUevent event) {
      return driver_.cuEventQuery(event) == CUDA_SUCCESS;
    });
    if (!happened) break;
    state.fruitless_polls = 0;
    state.advance(next.tick);
    retire(state, next);
    state.marks.pop_front();
  }
  state.has_marks.store(!state.marks.empty(), std::memory_order_relaxed);
  state.has_barrier.store(std::any_of(state.marks.begin(), state.marks.end(),
                                      [](const Mark& one) { return one.is_barrier; }),
                          std::memory_order_release);
}

// Whether the stream may have work now, or, of Everything, ended streams.
bool StreamClock::may_run(StreamState& stream) {
  if (stream.kind != StreamKind::Everything) return stream.kind == StreamKind::NonBlocking;
  const Holding holding{stream.lock};
  return stream.has_unmarked_end() || !stream.left_behind.empty() || !stream.marks.empty();
}

// Records on the legacy stream only if that delays no other stream. Otherwise the context gets no
// mark, and a thread that runs short of memory queries whether all of the context's work is done.
// The same holds if other contexts of the device have streams: a green context uses the memory of
// the primary one, but an event in its streams would end with it.
void StreamClock::mark_all(StreamState& all) {
  if (std::optional<Mark> mark = record_on_all(all)) add_mark(all, std::move(*mark));
}

std::optional<Mark> StreamClock::record_on_all(StreamState& all) {
  const StreamTable::Staying staying{table_};
  const InContext in_context{driver_, all.context};
  if (!in_context.ok()) return std::nullopt;
  const RelaxedCapture relaxed{driver_};
  Mark mark{.tick = all.tick.load(std::memory_order_acquire), .events = {}, .is_exact = false};
  const LegacyBarrier::Alone alone{program_.legacy};
  bool is_complete =
      !all.has_unmarked_end() && alone.is_alone() && record_on(all, CU_STREAM_LEGACY, mark);
  for (StreamState* stream : table_.of_device(all.device)) {
    if (!is_complete) break;
    if (stream->context != all.context) {
      is_complete = !may_run(*stream);
    } else if (stream->kind == StreamKind::NonBlocking) {
      is_complete = record_on(all, stream->handle, mark);
    }
  }
  const Holding holding{all.lock};
  if (!is_complete) {
    retire(all, mark);
    return std::nullopt;
  }
  mark.events.insert(mark.events.end(), all.left_behind.begin(), all.left_behind.end());
  all.left_behind.clear();
  return mark;
}

void StreamClock::mark_pending(StreamName name) {
  StreamState* state = table_.find(name);
  if (state == nullptr || state->kind == StreamKind::Legacy || !state->has_unfinished()) return;
  if (!is_capturing(state->handle)) record_own_mark(*state);
}

// Adds the stream's remaining work to that of its context, since the stream can no longer be looked
// up. Needed even if nothing is pending now: later frees depend on that work.
void StreamClock::record_final_event(const StreamState& stream) {
  StreamState& all = table_.everything_of(stream.context);
  const InContext in_context{driver_, stream.context};
  if (!in_context.ok()) return;
  const RelaxedCapture relaxed{driver_};
  // An event record, or a wait for the stream's earlier work, would end the capture. Captured work
  // does not run on the stream.
  if (is_capturing(stream.handle)) {
    const bool is_idle = stream.was_idle_before_capture.load() && !may_be_recorded_unseen();
    if (!is_idle) all.stream_ended_unmarked();
    return;
  }
  {
    // Reuse the events that have completed. Otherwise they would accumulate, one for each ended
    // stream, until a mark of the context takes them over.
    const Holding holding{all.lock};
    const auto is_over = [&](CUevent event) {
      if (driver_.cuEventQuery(event) != CUDA_SUCCESS) return false;
      all.spare_events.push_back(event);
      return true;
    };
    std::erase_if(all.left_behind, is_over);
  }
  Mark last;
  if (!record_on(all, stream.handle, last) && !record_on(all, stream.handle, last)) {
    const bool is_over =
        !is_capturing(stream.handle) && driver_.cuStreamSynchronize(stream.handle) == CUDA_SUCCESS;
    if (!is_over) all.stream_ended_unmarked();
    return;
  }
  const Holding holding{all.lock};
  all.left_behind.insert(all.left_behind.end(), last.events.begin(), last.events.end());
}

void StreamClock::stream_ends(CUstream handle) {
  StreamState* state = table_.find({.handle = handle});
  if (state == nullptr || state->kind > StreamKind::NonBlocking) return;
  if (state->has_unfinished() || state->knows_others.load()) {
    Mark last{.tick = last_tick, .events = {}, .is_exact = false};
    const InContext in_context{driver_, state->context};
    const RelaxedCapture relaxed{driver_};
    if (in_context.ok() && record_on(*state, handle, last)) {
      add_mark(*state, std::move(last));
    } else if (!is_capturing(handle) && driver_.cuStreamSynchronize(handle) == CUDA_SUCCESS) {
      // Without an event, only a wait for the context could tell later when its work is done. A
      // captured stream is left to that, since waiting for it would end the capture.
      end_behind_barrier(*state);
    }
  }
  record_final_event(*state);
  table_.stream_ended(handle);
  settle_an_ended_stream();
}

// The stream ends, and the driver has completed its work. That does not include what the stream
// waits for by the legacy rule alone.
void StreamClock::end_behind_barrier(StreamState& state) {
  const Holding holding{state.lock};
  if (Mark* const last = state.last_barrier()) {
    last->tick = last_tick;
  } else {
    state.advance(last_tick);
  }
}

// The records of ended streams are reused once nothing depends on them. Perhaps nobody else asks
// about this one.
void StreamClock::settle_an_ended_stream() {
  StreamState* const ended = table_.last_left_alone();
  if (ended == nullptr || !ended->knows_others.load(std::memory_order_acquire)) return;
  poll(*ended, PollEffort::Full);
  if (!ended->is_done(last_tick)) prune_known(*ended);
}

// The caller holds the state's lock.
CUevent StreamClock::pin(StreamState& state, CUevent event) {
  state.pinned_events.push_back(event);
  return event;
}

void StreamClock::unpin(StreamState& state, CUevent event) {
  const Holding holding{state.lock};
  const auto pinned = std::find(state.pinned_events.begin(), state.pinned_events.end(), event);
  if (pinned != state.pinned_events.end()) state.pinned_events.erase(pinned);
  const bool is_still_pinned = std::find(state.pinned_events.begin(), state.pinned_events.end(),
                                         event) != state.pinned_events.end();
  if (is_still_pinned || std::erase(state.retired_events, event) == 0) return;
  state.spare_events.push_back(event);
}

}  // namespace cuvmm
