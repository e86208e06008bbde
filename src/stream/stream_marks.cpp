// SPDX-License-Identifier: Apache-2.0
// Events of ours in the streams' work: where they are recorded, and what their queries tell.
#include <algorithm>
#include <mutex>

#include "driver/current_context.hpp"
#include "stream/per_thread_use.hpp"
#include "stream/stream_clock.hpp"

namespace cuvmm {

using Operation = StreamClock::Operation;

// An operation that natively waits for work of other streams without any event of the program's
// does so by the legacy rule. Where such work may have been submitted since this stream's last
// operation, an event takes the operation's place in the stream.
Operation::Operation(StreamClock& clock, StreamState& stream, Kind kind)
    : clock_(clock), stream_(stream) {
  std::uint64_t epoch = 0;
  const bool is_behind = clock_.is_behind_the_barrier(stream_, epoch);
  const bool leaves_mark = kind == Kind::Free && clock_.leaves_mark(stream_);
  if (is_behind && !leaves_mark) return;
  before_ = stream_.tick.load(std::memory_order_acquire);
  const CUresult answer = clock_.place_operation(stream_, epoch, is_behind, event_);
  if (!is_behind) answer_ = answer;  // a mark alone may be missing
}

Operation::~Operation() {
  if (event_ != nullptr) {
    clock_.add_mark(stream_, {.tick = before_, .events = {event_}, .is_exact = false});
  }
  if (stream_.kind == StreamKind::Legacy) {
    clock_.program_.legacy.legacy_submitted();
  } else if (stream_.is_blocking()) {
    clock_.program_.legacy.blocking_submitted();
  }
}

// The event is behind every free up to `before_`, and behind this one if nobody else freed on the
// stream meanwhile.
FreeTicket Operation::freed() {
  const FreeTicket ticket = stream_.ticket();
  if (ticket.tick == 1) clock_.freeing_streams_.fetch_add(1, std::memory_order_relaxed);
  if (event_ == nullptr) return ticket;
  const bool is_exact = ticket.tick == before_ + 1;
  clock_.add_mark(stream_, {.tick = is_exact ? ticket.tick : before_,
                            .events = {event_},
                            .is_exact = is_exact});
  event_ = nullptr;
  if (stream_.marks_wanted.load(std::memory_order_relaxed) > 0) {
    stream_.marks_wanted.fetch_sub(1, std::memory_order_relaxed);
  }
  return ticket;
}

bool StreamClock::is_behind_the_barrier(StreamState& stream, std::uint64_t& epoch) {
  if (stream.kind == StreamKind::NonBlocking) return true;
  const bool sees_everything = program_.sees_everything();
  if (stream.kind == StreamKind::Legacy) {
    if (sees_everything && !program_.legacy.has_blocking_streams()) return true;
    epoch = program_.legacy.blocking_epoch();
  } else {
    epoch = program_.legacy.legacy_epoch();
  }
  return sees_everything && stream.ordered_after.load(std::memory_order_acquire) == epoch;
}

// What the stream comes after is read before the event is recorded, so the event is behind it.
CUresult StreamClock::place_operation(StreamState& stream, std::uint64_t epoch, bool is_behind,
                                      CUevent& event) {
  const Place earlier = is_behind ? Place{} : other_side_of(stream);
  const InContext in_context{driver_, stream.context};
  if (!in_context.ok()) return in_context.answer();
  const RelaxedCapture relaxed{driver_};
  CUevent mark = take_event(stream);
  if (mark == nullptr) {
    const CUresult made = driver_.cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING);
    if (made != CUDA_SUCCESS) return made;
  }
  const CUresult recorded = driver_.cuEventRecord(mark, stream.handle);
  if (recorded != CUDA_SUCCESS) {
    give_back_event(stream, mark);
    return recorded;
  }
  if (!is_behind) {
    learn(stream, earlier);
    stream.ordered_after.store(epoch, std::memory_order_release);
  }
  event = mark;
  return CUDA_SUCCESS;
}

CUevent StreamClock::take_event(StreamState& state) {
  const Holding holding{state.lock};
  if (state.spare_events.empty()) return nullptr;
  const CUevent event = state.spare_events.back();
  state.spare_events.pop_back();
  return event;
}

void StreamClock::give_back_event(StreamState& state, CUevent event) {
  const Holding holding{state.lock};
  state.spare_events.push_back(event);
}

// A stream that is never asked about keeps no more than so many. Where there are too many, what
// every second one says is left to the next: it is known later.
void StreamClock::add_mark(StreamState& state, Mark mark) {
  constexpr std::size_t most_marks = 64;
  bool is_full = false;
  {
    const Holding holding{state.lock};
    state.marks.push_back(std::move(mark));
    state.has_marks.store(true, std::memory_order_relaxed);
    is_full = state.marks.size() > most_marks;
  }
  if (!is_full) return;
  poll(state, Zeal::Full);
  const Holding holding{state.lock};
  if (state.marks.size() <= most_marks) return;
  std::deque<Mark> kept;
  bool keeps = true;
  for (Mark& one : state.marks) {
    const bool is_last = &one == &state.marks.back();
    if (keeps || is_last) {
      kept.push_back(std::move(one));
    } else {
      retire(state, one);
    }
    keeps = !keeps;
  }
  state.marks = std::move(kept);
}

// Under the state's lock. An event that another thread names to the driver is not used again yet.
void StreamClock::retire(StreamState& state, Mark& mark) {
  for (CUevent event : mark.events) {
    if (state.followers != 0) {
      state.retired_events.push_back(event);
    } else if (state.ended.load()) {
      driver_.cuEventDestroy(event);
    } else {
      state.spare_events.push_back(event);
    }
  }
  mark.events.clear();
}

void StreamClock::mark_own(StreamId asker) {
  StreamState* state = table_.by_id(asker);
  if (state != nullptr && state->has_unfinished()) record_own_mark(*state);
}

void StreamClock::record_own_mark(StreamState& state) {
  const std::uint64_t tick = state.tick.load(std::memory_order_acquire);
  {
    const Holding holding{state.lock};
    if (state.is_done(tick)) return;
    if (!state.marks.empty() && state.marks.back().tick >= tick) return;
  }
  CUevent event = nullptr;
  if (place_operation(state, 0, true, event) == CUDA_SUCCESS) {
    add_mark(state, {.tick = tick, .events = {event}, .is_exact = false});
  }
}

void StreamClock::poll(StreamState& state, Zeal zeal) {
  constexpr int patient_polls = 4;
  constexpr int seldom = 8;
  const StreamTable::Staying staying{table_};
  if (state.context_ends.load()) return;
  const Holding holding{state.lock};
  if (state.marks.empty()) return;
  if (zeal == Zeal::Sparing && state.fruitless_polls++ >= patient_polls &&
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
    if (!happened) return;
    state.fruitless_polls = 0;
    state.advance(next.tick);
    retire(state, next);
    state.marks.pop_front();
  }
  state.has_marks.store(false, std::memory_order_relaxed);
}

bool StreamClock::is_capturing(CUstream handle) const {
  if (!program_.captures.any()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult answer = driver_.cuStreamIsCapturing(handle, &status);
  return answer != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool StreamClock::is_idle(CUstream handle) const {
  return driver_.cuStreamQuery(handle) == CUDA_SUCCESS;
}

// To query a stream waits while another thread is held up in a launch on it (measured). So it is
// done only while nobody is in the middle of one, and not at all where somebody is.
void StreamClock::ask_whether_idle(StreamState& state, const FreeTicket& freed) {
  if (state.ended.load()) return;
  if (state.kind == StreamKind::Everything) {
    if (!program_.gate.close(now_ns())) return;
    is_all_done(state.context);
    program_.gate.open();
    return;
  }
  {
    const Holding holding{state.lock};
    const bool is_marked = !state.marks.empty() && state.marks.back().tick >= freed.tick;
    if (is_marked) return;  // its event will tell
  }
  // The legacy stream answers for other threads' own streams too.
  const bool is_others =
      state.kind == StreamKind::PerThread && state.thread != PerThreadUse::this_thread();
  const CUstream handle = is_others ? CU_STREAM_LEGACY : state.handle;
  if (!program_.gate.close(now_ns())) return;
  {
    const StreamTable::Staying staying{table_};
    const InContext in_context{driver_, state.context};
    const RelaxedCapture relaxed{driver_};
    const Captures::HeldOff held_off{program_.captures};
    const bool may_ask = held_off.none_lives() ||
                         (state.kind == StreamKind::NonBlocking && !is_capturing(handle));
    const bool is_there = !state.ended.load() && !state.context_ends.load() && in_context.ok();
    const std::uint64_t tick = state.tick.load(std::memory_order_acquire);
    if (may_ask && is_there && is_idle(handle)) state.advance(tick);
  }
  program_.gate.open();
}

bool StreamClock::is_all_done(CUcontext context) {
  const StreamTable::Staying staying{table_};
  StreamState& all = table_.everything_of(context);
  if (all.context_ends.load()) return false;
  const InContext in_context{driver_, context};
  if (!in_context.ok()) return false;
  const RelaxedCapture relaxed{driver_};
  const Captures::HeldOff held_off{program_.captures};
  if (!held_off.none_lives()) return false;
  const Horizon horizon = horizon_of(context);
  if (!is_idle(CU_STREAM_LEGACY)) return false;
  for (const StreamState* stream : table_.of_context(context)) {
    if (stream->kind == StreamKind::NonBlocking && !is_idle(stream->handle)) return false;
  }
  if (ended_streams_run(context)) return false;
  horizon.reached();
  return true;
}

FreeTicket StreamClock::ticket_of_all(CUcontext context) {
  StreamState& all = table_.everything_of(context);
  const FreeTicket ticket = all.ticket();
  mark_all(all);
  return ticket;
}

FreeTicket StreamClock::ticket_of_allocation(StreamId allocated_on) {
  StreamState* const state = table_.by_id(allocated_on);
  if (state == nullptr) return {};
  if (!state->has_unfinished() && known_of(*state).empty()) return {};
  return state->ticket();
}

// On the legacy stream only where it stands for itself. Else its work is not marked, and whoever
// lacks memory asks whether all of it is done.
void StreamClock::mark_all(StreamState& all) {
  const StreamTable::Staying staying{table_};
  const InContext in_context{driver_, all.context};
  if (!in_context.ok()) return;
  const RelaxedCapture relaxed{driver_};
  Mark mark{.tick = all.tick.load(std::memory_order_acquire), .events = {}, .is_exact = false};
  const LegacyBarrier::Alone alone{program_.legacy};
  bool is_complete = alone.is_alone() && record_on(all, CU_STREAM_LEGACY, mark);
  for (StreamState* stream : table_.of_context(all.context)) {
    if (!is_complete) break;
    if (stream->kind != StreamKind::NonBlocking) continue;
    is_complete = record_on(all, stream->handle, mark);
  }
  {
    const Holding holding{all.lock};
    if (!is_complete) return retire(all, mark);
    mark.events.insert(mark.events.end(), all.left_behind.begin(), all.left_behind.end());
    all.left_behind.clear();
  }
  add_mark(all, std::move(mark));
}

// A capture would be broken by an event on one of its streams, and a captured blocking stream by
// one on the legacy stream.
bool StreamClock::record_on(StreamState& state, CUstream handle, Mark& mark) {
  const Captures::HeldOff held_off{program_.captures};
  if (!held_off.none_lives() && (handle == CU_STREAM_LEGACY || is_capturing(handle))) return false;
  CUevent event = take_event(state);
  if (event == nullptr && driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    return false;
  }
  if (driver_.cuEventRecord(event, handle) != CUDA_SUCCESS) {
    give_back_event(state, event);
    return false;
  }
  mark.events.push_back(event);
  return true;
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

void StreamClock::mark_pending(StreamName name) {
  StreamState* state = table_.find(name);
  if (state != nullptr && state->kind != StreamKind::Legacy && state->has_unfinished()) {
    record_own_mark(*state);
  }
}

// The work that a stream leaves behind belongs to all the work of its context, and nobody finds the
// stream any more. Also for what is freed from now on only.
void StreamClock::leave_behind(const StreamState& stream) {
  StreamState& all = table_.everything_of(stream.context);
  const InContext in_context{driver_, stream.context};
  if (!in_context.ok()) return;
  const RelaxedCapture relaxed{driver_};
  // What was captured does not run, and to ask for it would end the capture.
  if (is_capturing(stream.handle)) return;
  {
    // Else they would be as many as streams ever ended where nobody asks for a mark.
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
    driver_.cuStreamSynchronize(stream.handle);
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
    } else if (driver_.cuStreamSynchronize(handle) == CUDA_SUCCESS) {
      // Where no event can be had, nobody could know later when its work is done.
      state->advance(last_tick);
    }
  }
  leave_behind(*state);
  table_.stream_ended(handle);
}

void StreamClock::end_overlap(StreamName name) {
  if (is_capturing(name.handle)) return;
  StreamState* state = table_.find(name);
  if (state != nullptr && state->has_unfinished()) record_own_mark(*state);
}

}  // namespace cuvmm
