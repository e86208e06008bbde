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
// does so by the legacy rule. A free always does. An allocation does where its memory is behind
// that work; memory that nothing uses any more may be had at once.
Operation::Operation(StreamClock& clock, StreamState& stream, Kind kind)
    : clock_(clock), stream_(stream) {
  if (clock_.has_other_side(stream_, epoch_)) {
    clock_.learn_other_side(stream_, epoch_);
    is_ahead_of_barrier_ = !clock_.program_.sees_everything() ||
                           stream_.barrier_epoch.load(std::memory_order_acquire) != epoch_;
  }
  if (kind == Kind::Allocation) return;
  before_ = stream_.tick.load(std::memory_order_acquire);
  if (is_ahead_of_barrier_) {
    answer_ = stand_as_barrier();
  } else if (clock_.leaves_mark(stream_)) {
    clock_.record_operation(stream_, event_);  // may be missing
  }
}

Operation::~Operation() {
  if (event_ != nullptr) {
    clock_.add_mark(stream_, {.tick = before_, .events = {event_}, .is_barrier = is_barrier_});
  }
  if (stream_.kind == StreamKind::Legacy) {
    clock_.program_.legacy.legacy_submitted();
  } else if (stream_.is_blocking()) {
    clock_.program_.legacy.blocking_submitted();
  }
}

CUresult Operation::stand_as_barrier() {
  const CUresult answer = clock_.record_operation(stream_, event_);
  if (answer != CUDA_SUCCESS) return answer;
  is_barrier_ = true;
  stream_.barrier_epoch.store(epoch_, std::memory_order_release);
  return CUDA_SUCCESS;
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
                            .is_exact = is_exact,
                            .is_barrier = is_barrier_});
  event_ = nullptr;
  if (stream_.marks_wanted.load(std::memory_order_relaxed) > 0) {
    stream_.marks_wanted.fetch_sub(1, std::memory_order_relaxed);
  }
  return ticket;
}

CUresult Operation::granted_behind_others() {
  if (!is_ahead_of_barrier_) return CUDA_SUCCESS;
  before_ = stream_.tick.load(std::memory_order_acquire);
  return stand_as_barrier();
}

// Whether the legacy rule may order the stream behind anything, and the epoch of what that is.
bool StreamClock::has_other_side(const StreamState& stream, std::uint64_t& epoch) {
  if (stream.kind == StreamKind::NonBlocking) return false;
  if (stream.kind != StreamKind::Legacy) {
    epoch = program_.legacy.legacy_epoch();
    return true;
  }
  if (!program_.legacy.has_blocking_streams() && program_.sees_everything()) return false;
  epoch = program_.legacy.blocking_epoch();
  return true;
}

// The stream's coming work is behind what the other side was given before, whatever we do.
void StreamClock::learn_other_side(StreamState& stream, std::uint64_t epoch) {
  if (program_.sees_everything() && stream.learnt_epoch.load(std::memory_order_acquire) == epoch) {
    return;
  }
  learn(stream, other_side_of(stream));
  stream.learnt_epoch.store(epoch, std::memory_order_release);
}

CUresult StreamClock::record_operation(StreamState& stream, CUevent& event) {
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
    if (mark.is_barrier) state.has_barrier.store(true, std::memory_order_release);
    state.marks.push_back(std::move(mark));
    state.has_marks.store(true, std::memory_order_relaxed);
    is_full = state.marks.size() > most_marks;
  }
  if (!is_full) return;
  poll(state, Zeal::Full);
  const Holding holding{state.lock};
  if (state.marks.size() <= most_marks) return;
  const auto last_barrier = std::find_if(state.marks.rbegin(), state.marks.rend(),
                                         [](const Mark& one) { return one.is_barrier; });
  std::deque<Mark> kept;
  bool keeps = true;
  for (Mark& one : state.marks) {
    const bool is_last = &one == &state.marks.back();
    const bool is_last_barrier = last_barrier != state.marks.rend() && &one == &*last_barrier;
    if (keeps || is_last || is_last_barrier) {
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
    if (std::find(state.pinned_events.begin(), state.pinned_events.end(), event) !=
        state.pinned_events.end()) {
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
  if (record_operation(state, event) == CUDA_SUCCESS) {
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
void StreamClock::ask_whether_idle(StreamState& state) {
  if (state.ended.load()) return;
  if (state.kind == StreamKind::Everything) {
    if (!program_.gate.close(now_ns())) return;
    is_all_done(state.context);
    program_.gate.open();
    return;
  }
  {
    // The events of marks will tell. What a barrier stands for, the driver does not count either.
    const Holding holding{state.lock};
    if (!state.marks.empty()) return;
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
    const bool may_ask =
        held_off.none_lives() || (state.kind == StreamKind::NonBlocking && !is_capturing(handle));
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

// Under the state's lock.
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

// The last barrier is behind all others.
StreamClock::PlacedOperations::PlacedOperations(StreamClock& clock, StreamName name)
    : clock_(clock), stream_(clock.table_.find(name)) {
  if (stream_ == nullptr || !stream_->has_barrier.load(std::memory_order_acquire)) return;
  const Holding holding{stream_->lock};
  const auto last = std::find_if(stream_->marks.rbegin(), stream_->marks.rend(),
                                 [](const Mark& mark) { return mark.is_barrier; });
  if (last == stream_->marks.rend() || stream_->context_ends.load()) return;
  event_ = pin(*stream_, last->events.front());
}

StreamClock::PlacedOperations::~PlacedOperations() {
  if (event_ != nullptr) unpin(*stream_, event_);
}

bool StreamClock::PlacedOperations::are_done() const {
  if (event_ == nullptr) return true;
  const RelaxedCapture relaxed{clock_.driver_};
  return clock_.driver_.cuEventQuery(event_) != CUDA_ERROR_NOT_READY;
}

CUresult StreamClock::PlacedOperations::wait() const {
  if (event_ == nullptr) return CUDA_SUCCESS;
  const RelaxedCapture relaxed{clock_.driver_};
  return clock_.driver_.cuEventSynchronize(event_);
}

}  // namespace cuvmm
