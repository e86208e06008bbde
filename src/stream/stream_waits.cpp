// SPDX-License-Identifier: Apache-2.0
// Waiting for streams and checking whether they are idle, under pressure and to stop the program.
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "base/not_cancelled.hpp"
#include "driver/current_context.hpp"
#include "stream/per_thread_use.hpp"
#include "stream/stream_clock.hpp"

namespace cuvmm {
namespace {

// Short waits poll often; long waits back off and leave the processor alone.
class Patience {
 public:
  void rest() {
    rest_us(length_);
    length_ = std::min(length_ * 2, longest);
  }

 private:
  static constexpr useconds_t longest = 200;
  useconds_t length_ = 5;
};

}  // namespace

bool StreamClock::is_capturing(CUstream handle) const {
  if (!program_.captures.may_live()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult answer = driver_.cuStreamIsCapturing(handle, &status);
  return answer != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool StreamClock::is_idle(CUstream handle) const {
  return driver_.cuStreamQuery(handle) == CUDA_SUCCESS;
}

// Querying a stream blocks while another thread is stuck in a launch on it, and breaks the capture
// of a stream that has just joined one. So this queries only with the gate closed and no thread
// inside a launch, and otherwise gives up. Other streams' captures do not forbid a relaxed thread
// to query a stream with a handle of its own (all measured).
bool StreamClock::is_seen_idle(const StreamState& state, CUstream handle, std::uint64_t until) {
  if (!program_.gate.close(until)) return false;
  bool is_seen = false;
  {
    const StreamTable::Staying staying{table_};
    const InContext in_context{driver_, state.context};
    const RelaxedCapture relaxed{driver_};
    const Captures::CaptureBlock held_off{program_.captures};
    const bool may_ask =
        held_off.none_lives() || (state.kind <= StreamKind::NonBlocking && !is_capturing(handle));
    const bool is_there = !state.ended.load() && !state.context_ends.load() && in_context.ok();
    is_seen = may_ask && is_there && is_idle(handle);
  }
  program_.gate.open();
  return is_seen;
}

void StreamClock::note_work_before_capture(StreamName name) {
  constexpr std::uint64_t patience = 200'000;  // ns
  StreamState* state = table_.find(name);
  if (state == nullptr || state->kind > StreamKind::NonBlocking) return;
  if (is_capturing(state->handle)) return;
  state->was_idle_before_capture.store(false);
  state->was_idle_before_capture.store(is_seen_idle(*state, state->handle, now_ns() + patience));
}

void StreamClock::ask_whether_idle(StreamState& state) {
  if (state.context_ends.load()) return;
  const bool is_of_all = state.kind == StreamKind::Everything;
  std::uint64_t tick = 0;
  if (!is_of_all) {
    // Rely on the marks if there are any: the driver's answer does not cover a barrier mark's work.
    // Nor does it cover that of a free from now on.
    const Holding holding{state.lock};
    if (!state.marks.empty()) return;
    tick = state.tick.load(std::memory_order_acquire);
  }
  // A stream that has ended can no longer be queried, but its context can.
  if (is_of_all || state.ended.load()) {
    if (!program_.gate.close(now_ns())) return;
    is_all_done(state.context);
    program_.gate.open();
    return;
  }
  // Another thread's default stream cannot be named here, but a query of the legacy stream covers
  // it.
  const bool is_others =
      state.kind == StreamKind::PerThread && state.thread != PerThreadUse::this_thread();
  const CUstream handle = is_others ? CU_STREAM_LEGACY : state.handle;
  if (is_seen_idle(state, handle, now_ns())) state.advance(tick);
}

bool StreamClock::is_all_done(CUcontext context) {
  const StreamTable::Staying staying{table_};
  StreamState& all = table_.everything_of(context);
  if (all.context_ends.load()) return false;
  const InContext in_context{driver_, context};
  if (!in_context.ok()) return false;
  const RelaxedCapture relaxed{driver_};
  const Captures::CaptureBlock held_off{program_.captures};
  if (!held_off.none_lives()) return false;
  const Horizon horizon = horizon_of(context);
  if (!is_idle(CU_STREAM_LEGACY)) return false;
  // The streams of green contexts use the memory of the primary one.
  for (const StreamState* stream : table_.of_device(all.device)) {
    if (stream->context_ends.load()) return false;
    if (stream->kind == StreamKind::NonBlocking && !is_idle(stream->handle)) return false;
    if (stream->kind == StreamKind::Everything && ended_streams_run(stream->context)) return false;
  }
  horizon.reached();
  return true;
}

bool StreamClock::ended_streams_run(CUcontext context) {
  StreamState& all = table_.everything_of(context);
  if (all.has_unmarked_end()) return true;
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

bool StreamClock::wait(const FreeTicket& freed, std::uint64_t until) {
  constexpr std::uint64_t between_questions = 500'000;  // ns
  StreamState* const state = table_.by_id(freed.stream);
  Patience patience;
  for (std::uint64_t next_question = 0;;) {
    if (is_done(freed) || state == nullptr) return true;
    poll(*state, PollEffort::Full);
    if (is_done(freed)) return true;
    const std::uint64_t now = now_ns();
    if (now >= next_question) {
      look(freed.stream);
      ask_whether_idle(*state);
      if (is_done(freed)) return true;
      next_question = now + between_questions;
    }
    if (now >= until) return false;
    patience.rest();
  }
}

bool StreamClock::wait_for_all(CUcontext context, std::uint64_t until) {
  for (Patience patience; !is_all_done(context); patience.rest()) {
    if (now_ns() >= until) return false;
  }
  return true;
}

bool StreamClock::wait_for_everything(std::uint64_t until) {
  const auto contexts = table_.everything_of_all();
  return std::all_of(contexts.begin(), contexts.end(),
                     [&](StreamState* context) { return wait_for_all(context->context, until); });
}

bool StreamClock::wait_for_frees(int device, std::uint64_t until) {
  bool learnt = false;
  for (StreamState* state : table_.with_unfinished(device)) {
    if (wait({state->id, state->tick.load()}, until)) learnt = true;
  }
  return learnt;
}

void StreamClock::ask_about_frees(int device) {
  for (StreamState* state : table_.with_unfinished(device)) {
    const FreeTicket last{state->id, state->tick.load()};
    poll(*state, PollEffort::Full);
    if (!is_done(last)) ask_whether_idle(*state);
  }
}

}  // namespace cuvmm
