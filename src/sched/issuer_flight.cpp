// SPDX-License-Identifier: Apache-2.0
// Issued operations that are not known to have completed, in batches between marks.
#include <sched.h>

#include <algorithm>
#include <mutex>

#include "sched/issuer.hpp"
#include "sched/schedule_events.hpp"

namespace cuvmm {
namespace {

constexpr std::uint32_t most_in_batch = 64;
constexpr std::uint64_t longest_between_ns = 100'000;
constexpr std::uint64_t longest_for_marks_ns = 1'000'000'000;
constexpr std::uint64_t longest_for_marks_behind_a_call_ns = 100'000'000;
constexpr std::uint64_t longest_to_leave_ns = 100'000'000;

}  // namespace

// Consecutive operations on one stream are measured together.
void Issuer::join_batch(LaneState& state, const Request& request, std::uint64_t estimate,
                        std::uint64_t now) {
  if (request.stream == nullptr || request.stream->context != request.context) {
    close_batch();
    return;
  }
  // A record takes no device time and completes with the preceding work on its stream. On the
  // legacy stream it is a barrier: a mark after it would wait for all blocking streams.
  if (request.event_use == EventUse::Records) {
    if (request.stream->kind == StreamKind::Legacy) close_batch();
    return;
  }
  const bool joins = batch_.lane == state.lane && batch_.stream == request.stream->id &&
                     batch_.operations < most_in_batch &&
                     (!is_paced_ || batch_.estimate_ns + estimate <= in_ns(settings_.window));
  if (!joins) {
    close_batch();
    // A batch behind another on its stream begins where that one ends.
    const bool follows = is_in_flight(request.stream->id);
    batch_ = {.lane = state.lane,
              .context = request.context,
              .stream = request.stream->id,
              .handle = request.stream->handle,
              .kind = request.kind};
    if (!follows && !side_.mark_begin(batch_)) {
      batch_ = {};
      return;
    }
    if (!follows) queues_.submitted(batch_.stream);
    batches_.fetch_add(1, std::memory_order_acq_rel);
  }
  batch_grew_at_ = now;
  if (batch_.kind != request.kind) batch_.kind = 0;
  ++batch_.operations;
  batch_.estimate_ns += estimate;
  state.in_flight += {1, estimate};
  in_flight_ += {1, estimate};
}

// A mark costs the device some microseconds between two kernels. So a lane that nobody else waits
// for gets few of them, as long as earlier batches keep the device busy.
bool Issuer::may_grow(std::uint64_t now) const {
  return batch_.lane != nullptr && !is_paced_ && !flying_.empty() &&
         now - batch_grew_at_ < longest_between_ns && !marks_are_wanted_.load();
}

// Marks take places in the launch queue too. If it is long, the batch counts as done with the one
// before it on its stream, rather than getting a mark of its own.
bool Issuer::join_last_of_long_queue(const Batch& batch) {
  if (batch.begin != nullptr || !queues_.is_long(batch.stream)) return false;
  const auto last = std::find_if(flying_.rbegin(), flying_.rend(),
                                 [&](const Batch& one) { return one.stream == batch.stream; });
  if (last == flying_.rend() || last->lane != batch.lane) return false;
  last->operations += batch.operations;
  last->estimate_ns += batch.estimate_ns;
  last->kind = 0;
  return true;
}

void Issuer::close_batch() {
  if (batch_.lane == nullptr) return;
  Batch batch = std::exchange(batch_, {});
  const bool is_joined = join_last_of_long_queue(batch);
  const bool is_marked = !is_joined && side_.mark_end(batch);
  marks_are_wanted_.store(false);
  batches_.fetch_add(1, std::memory_order_acq_rel);
  if (is_joined) return;
  if (is_marked) {
    batch.queued_to = queues_.submitted(batch.stream);
    queues_.marked(batch.stream, batch.queued_to);
    flying_.push_back(batch);
  } else {
    is_done(batch, 0, now_ns());
  }
}

// A batch without operations. Where a mark cannot be made, the calls so far count as done.
void Issuer::mark_queue(const LaneState& state, const StreamState& stream) {
  Batch mark{
      .lane = state.lane, .context = stream.context, .stream = stream.id, .handle = stream.handle};
  const bool is_marked = side_.mark_begin(mark) && side_.mark_end(mark);
  mark.queued_to = queues_.submitted(stream.id, is_marked ? 2 : 0);
  if (is_marked) {
    queues_.marked(stream.id, mark.queued_to);
    flying_.push_back(mark);
  } else {
    queues_.completed_to(stream.id, mark.queued_to);
  }
}

// The batch counts as done, and its context takes no mark any more.
void Issuer::drop_batch() {
  Batch batch = std::exchange(batch_, {});
  marks_are_wanted_.store(false);
  batches_.fetch_add(1, std::memory_order_acq_rel);
  is_done(batch, 0, now_ns());
}

// Batches of one stream complete in order; those of different streams in any order.
void Issuer::look_at_device(std::uint64_t now) {
  looked_at_ = now;
  for (LaneState& state : lane_states_) state.held = {};
  held_callers_ = std::min(held_callers_, callers_.load(std::memory_order_acquire));
  held_ = {.operations = held_callers_};
  for (auto place = flying_.begin(); place != flying_.end();) {
    const Batch* const first = first_of(place->stream);
    const bool is_first = first == &*place;
    const auto ran = is_first ? side_.device_time(*place) : std::nullopt;
    if (!ran) {
      if (is_first && place->first_since == 0) place->first_since = now;
      LaneState* const state = first->is_held ? state_of(place->lane) : nullptr;
      if (state != nullptr) {
        state->held += load_of(*place);
        held_ += load_of(*place);
      }
      ++place;
      continue;
    }
    queues_.completed_to(place->stream, place->queued_to);
    is_done(*place, *ran, now);
    place = flying_.erase(place);
  }
}

void Issuer::is_done(Batch& batch, std::uint64_t ran, std::uint64_t now) {
  progress_at_ = now;
  done_at_ = now;
  in_flight_ -= load_of(batch);
  batch.lane->client().count_device_time(ran);
  LaneState* state = state_of(batch.lane);
  if (state == nullptr || batch.operations == 0) return;
  state->in_flight -= load_of(batch);
  state->active_at = now;
  state->done_at = now;
  state->next_to_let_through = 1;
  // Replaces the estimate, counted at issue, by the measured time.
  state->share_used += state->by_weight(ran);
  state->share_used -= std::min(state->share_used, state->by_weight(batch.estimate_ns));
  if (ran != 0) state->estimates.learn(batch.kind, ran / batch.operations);
  if (trace_is_on()) [[unlikely]]
    trace_completed(*batch.lane, batch, device_, ran);
}

void Issuer::wait_for_marks() {
  const std::uint64_t seen = batches_.load(std::memory_order_acquire);
  if (seen % 2 == 0) return;
  marks_are_wanted_.store(true);
  if (sleeps_.load(std::memory_order_seq_cst) != 0) wake();
  const std::uint64_t began = now_ns();
  while (batches_.load(std::memory_order_acquire) == seen) {
    std::uint64_t since = began;
    const bool is_in_call = call_in_progress(since) != nullptr;
    const std::uint64_t longest =
        is_in_call ? longest_for_marks_behind_a_call_ns : longest_for_marks_ns;
    if (now_ns() - since > longest) return;
    ::sched_yield();
  }
}

void Issuer::leave_context(CUcontext context) {
  std::uint32_t ticket = 0;
  {
    const Holding holding{lock_};
    to_leave_.push_back({.context = context, .has_ended = false});
    ticket = ++leaves_asked_for_;
    has_news_.store(true, std::memory_order_seq_cst);
  }
  wake();
  const std::uint64_t until = now_ns() + longest_to_leave_ns;
  while (has_stopped_.load() == 0 && now_ns() < until) {
    const std::uint32_t left = contexts_left_.load();
    if (static_cast<std::int32_t>(left - ticket) >= 0) return;
    wait_while(contexts_left_, left, Duration{1'000});
  }
}

void Issuer::context_ended(CUcontext context) {
  const Holding holding{lock_};
  for (Leaving& leaving : to_leave_) {
    if (leaving.context == context) leaving.has_ended = true;
  }
}

// Does not wait for the context's batches: they end with it, as do their events.
void Issuer::leave(const Leaving& leaving) {
  const CUcontext context = leaving.context;
  if (batch_.lane != nullptr && batch_.context == context) {
    leaving.has_ended ? drop_batch() : close_batch();
  }
  for (auto place = flying_.begin(); place != flying_.end();) {
    if (place->context != context) {
      ++place;
      continue;
    }
    if (!leaving.has_ended) side_.drop(*place);
    is_done(*place, 0, now_ns());
    place = flying_.erase(place);
  }
  if (current_ != context) return;
  current_ = nullptr;
  if (!leaving.has_ended) side_.make_current(nullptr);
}

}  // namespace cuvmm
