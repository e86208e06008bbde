// SPDX-License-Identifier: Apache-2.0
// Chooses the next operation: the policy's choice, what must be issued before it, and how far it
// may run ahead.
#include <algorithm>

#include "sched/issuer.hpp"
#include "sched/ranges.hpp"

namespace cuvmm {
namespace {

constexpr std::uint64_t active_for_ns = 100'000'000;
constexpr std::uint64_t times_patience_beside_others = 50;

}  // namespace

// A lane that was idle does not accumulate a claim to the device in that time.
void Issuer::gather(std::uint64_t now) {
  waiting_.clear();
  candidates_.clear();
  if (in_flight_.operations == 0) done_at_ = now;
  lane_states_.remove_if([](const LaneState& state) {
    return state.in_flight.operations == 0 && state.client().has_ended() && state.lane->is_empty();
  });
  for (LaneState& state : lane_states_) {
    if (state.in_flight.operations == 0) state.done_at = now;
    Operation* first = state.lane->first();
    if (first == nullptr) {
      if (state.in_flight.operations != 0) state.active_at = now;
      continue;
    }
    if (now - state.active_at > active_for_ns) {
      state.share_used = std::max(state.share_used, share_of_last_);
    }
    state.active_at = now;
    waiting_.push_back({&state, first});
    candidates_.push_back({.priority = state.client().priority(),
                           .weight = state.client().weight(),
                           .order = first->order,
                           .waiting_since = std::max(first->submitted_at, state.issued_at),
                           .share_used = state.share_used,
                           .last_turn = state.last_turn,
                           .place = candidates_.size()});
  }
}

bool Issuer::is_ready(const Operation& operation) const {
  return std::all_of(operation.after.begin(), operation.after.end(),
                     [](const QueuePosition& position) { return position.is_issued(); });
}

// Only a mark that was reached says how many calls have left the launch queue, so a stream that has
// long had none gets one. Only their own threads can mark per-thread streams, and a caller that the
// driver blocks holds up nobody else.
bool Issuer::has_room_for(const LaneState& state, const Operation& operation) {
  const StreamState* const stream = operation.request.stream;
  if (stream == nullptr) return true;
  if (queues_.needs_mark(stream->id) && stream->kind != StreamKind::PerThread) {
    if (batch_.lane != nullptr && batch_.stream == stream->id) close_batch();
    if (queues_.needs_mark(stream->id)) mark_queue(state, *stream);
  }
  return operation.request.issued_by == IssuedBy::Caller || !queues_.is_nearly_full(stream->id);
}

// Returns the lane to issue from so that `state` can proceed. If the first operation of the chosen
// lane depends on another lane, that lane goes first, regardless of policy. nullptr if it has to
// wait for another device's thread, for an operation that is still being written, or for room in a
// launch queue. Terminates, since the operation submitted first depends on none.
LaneState* Issuer::first_needed_by(LaneState& state) {
  LaneState* needed = &state;
  while (needed != nullptr) {
    Operation* first = needed->lane->first();
    if (first == nullptr) return nullptr;
    const auto missing =
        std::find_if(first->after.begin(), first->after.end(),
                     [](const QueuePosition& position) { return !position.is_issued(); });
    if (missing == first->after.end()) return has_room_for(*needed, *first) ? needed : nullptr;
    needed = state_of(missing->lane);
  }
  return nullptr;
}

bool Issuer::keeps_pace(LaneState& state, std::uint64_t now) {
  const Schedule policy = policy_.load(std::memory_order_relaxed);
  const Operation& first = *state.lane->first();
  Others others;
  int highest = state.client().priority();
  for (const LaneState& other : lane_states_) {
    if (&other == &state) continue;
    if (now - other.active_at < active_for_ns) others.any_active = true;
    highest = std::max(highest, other.client().priority());
  }
  others.any_higher = highest > state.client().priority();
  Pace pace = pace_of(policy, others, settings_.window);
  // A lane that has aged to the highest priority need not wait until the device is empty.
  const std::uint64_t waited = now - std::min(now, std::max(first.submitted_at, state.issued_at));
  const auto steps = static_cast<std::uint64_t>(highest - state.client().priority());
  if (others.any_higher && waited > steps * aging_step_ns) pace.of_all = false;
  is_paced_ = pace.of_all;
  if (pacing_has_ended_.load(std::memory_order_relaxed)) return true;

  Load load = pace.of_all ? in_flight_ : state.in_flight;
  if (pace.of_all) load.operations += callers_.load(std::memory_order_acquire);
  // Work that makes no progress does not occupy the device. More work behind it would, later.
  if (!is_held(first)) load -= pace.of_all ? held_ : state.held;
  if (load.operations < pace.least_operations) return true;
  if (load.operations >= pace.most_operations) return false;
  return load.ns + state.estimates.of(first.request.kind) <= pace.most_ns;
}

LaneState* Issuer::decide(std::uint64_t now) {
  const ScheduleRange range{"Policy:decide"};
  for (Waiting& waiting : waiting_) {
    const std::uint64_t times = is_held(*waiting.first) ? 1 : times_patience_beside_others;
    if (has_stalled_beside_others(*waiting.state, now, times)) let_through(*waiting.state, now);
    if (waiting.state->let_through == 0) continue;
    if (LaneState* needed = first_needed_by(*waiting.state)) {
      if (needed == waiting.state) --waiting.state->let_through;
      return needed;
    }
  }
  const Schedule policy = policy_.load(std::memory_order_relaxed);
  while (!candidates_.empty()) {
    const std::size_t best = choose(policy, candidates_, now);
    const Waiting& chosen = waiting_[candidates_[best].place];
    if (LaneState* needed = first_needed_by(*chosen.state)) {
      if (keeps_pace(*chosen.state, now)) return needed;
      // Lanes that the policy ranks lower must not overtake it while its stream makes progress.
      if (!is_held(*chosen.first)) break;
    }
    candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(best));
  }
  for (LaneState& state : lane_states_) {
    if (has_stalled(state, now)) let_through(state, now);
  }
  find_held_streams(now);
  return nullptr;
}

// A stream whose work waits for the host, or for another stream, leaves the device to others.
void Issuer::find_held_streams(std::uint64_t now) {
  const std::uint64_t patience = in_ns(settings_.patience);
  const bool nothing_moves = now - progress_at_ >= patience;
  if (nothing_moves) held_callers_ = callers_.load(std::memory_order_acquire);
  for (Batch& batch : flying_) {
    if (batch.first_since == 0) continue;
    const std::uint64_t waited = now - batch.first_since;
    if (waited >= times_patience_beside_others * patience ||
        (nothing_moves && waited >= patience + batch.estimate_ns)) {
      batch.is_held = true;
    }
  }
}

bool Issuer::is_held(const Operation& operation) const {
  const StreamState* const stream = operation.request.stream;
  if (held_.operations == 0 || stream == nullptr) return false;
  const Batch* const first = first_of(stream->id);
  return first != nullptr && first->is_held;
}

const Batch* Issuer::first_of(StreamId stream) const {
  for (const Batch& batch : flying_) {
    if (batch.stream == stream) return &batch;
  }
  return nullptr;
}

bool Issuer::is_in_flight(StreamId stream) const {
  return batch_.stream == stream || first_of(stream) != nullptr;
}

bool Issuer::has_stalled(const LaneState& state, std::uint64_t now) const {
  return now - std::max(progress_at_, state.let_through_at) >= in_ns(settings_.patience);
}

// This lane makes no progress, although others may.
bool Issuer::has_stalled_beside_others(const LaneState& state, std::uint64_t now,
                                       std::uint64_t times_patience) const {
  return state.in_flight.operations != 0 &&
         now - state.done_at >= times_patience * in_ns(settings_.patience) &&
         now - state.let_through_at >= in_ns(settings_.patience);
}

// Whether nothing has completed for longer than the work in flight is estimated to take.
bool Issuer::nothing_is_done(std::uint64_t now) const {
  std::uint64_t longest = 0;
  for (const Batch& batch : flying_) longest = std::max(longest, batch.estimate_ns);
  const std::uint64_t patience = in_ns(settings_.patience);
  return now - done_at_ >= patience + std::min(longest, times_patience_beside_others * patience);
}

// Work in flight may be waiting for operations not issued yet: for a value that another stream
// writes, or in a host function. Only an operation on a stream with nothing in flight can help, so
// the lane is let through up to the first such operation. Without one, work in flight may be
// waiting for a thread that is itself blocked on the lane. Then everything in the lane is let
// through, but in growing steps, since a long-running kernel looks the same.
void Issuer::let_through(LaneState& state, std::uint64_t now) {
  const bool beside_others = has_stalled_beside_others(state, now, times_patience_beside_others);
  const auto waiting = static_cast<std::uint32_t>(state.lane->waiting());
  if (waiting == 0) return;
  state.let_through_at = now;
  for (std::uint32_t further = 0; further < waiting; ++further) {
    const Operation* operation = state.lane->behind_first(further);
    if (operation == nullptr) break;
    const StreamState* stream = operation->request.stream;
    if (stream != nullptr && is_in_flight(stream->id)) continue;
    state.let_through = further + 1;
    return;
  }
  if (!state.lane->is_waited_for() || !(beside_others || nothing_is_done(now))) return;
  state.let_through = std::min(waiting, state.next_to_let_through);
  state.next_to_let_through = 2 * state.let_through;
}

}  // namespace cuvmm
