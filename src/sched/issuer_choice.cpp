// SPDX-License-Identifier: Apache-2.0
// Who is next: the policy's choice, what has to go before it, and whether it may run ahead.
#include <algorithm>

#include "sched/issuer.hpp"
#include "sched/ranges.hpp"

namespace cuvmm {
namespace {

constexpr std::uint64_t active_for_ns = 100'000'000;
constexpr std::uint64_t times_patience_beside_others = 50;

}  // namespace

// Who comes back after a while has not saved up a claim to the device.
void Issuer::gather(std::uint64_t now) {
  waiting_.clear();
  candidates_.clear();
  if (in_flight_ == 0) done_at_ = now;
  seats_.remove_if([](const Seat& seat) {
    return seat.in_flight == 0 && seat.client().has_ended() && seat.lane->is_empty();
  });
  for (Seat& seat : seats_) {
    if (seat.in_flight == 0) seat.done_at = now;
    Operation* first = seat.lane->first();
    if (first == nullptr) {
      if (seat.in_flight != 0) seat.active_at = now;
      continue;
    }
    if (now - seat.active_at > active_for_ns) {
      seat.share_used = std::max(seat.share_used, share_of_last_);
    }
    seat.active_at = now;
    waiting_.push_back({&seat, first});
    candidates_.push_back({.priority = seat.client().priority(),
                           .weight = seat.client().weight(),
                           .order = first->order,
                           .waiting_since = std::max(first->submitted_at, seat.issued_at),
                           .share_used = seat.share_used,
                           .last_turn = seat.last_turn});
  }
}

bool Issuer::is_ready(const Operation& operation) const {
  return std::all_of(operation.after.begin(), operation.after.end(),
                     [](const Place& place) { return place.is_issued(); });
}

// The chosen lane's operation may have to come after another lane's: then that one goes first,
// whatever the policy thinks of it. nullptr where it has to wait for another device's thread, or
// for an operation that is still being written. Ends, since the one submitted first waits for none.
Seat* Issuer::first_needed_by(Seat& seat) {
  Seat* needed = &seat;
  while (needed != nullptr) {
    Operation* first = needed->lane->first();
    if (first == nullptr) return nullptr;
    const auto missing = std::find_if(first->after.begin(), first->after.end(),
                                      [](const Place& place) { return !place.is_issued(); });
    if (missing == first->after.end()) return needed;
    needed = seat_of(missing->lane);
  }
  return nullptr;
}

bool Issuer::keeps_pace(Seat& seat, std::uint64_t now) {
  const Schedule policy = policy_.load(std::memory_order_relaxed);
  const Operation& first = *seat.lane->first();
  Others others;
  int highest = seat.client().priority();
  for (const Seat& other : seats_) {
    if (&other == &seat) continue;
    if (now - other.active_at < active_for_ns) others.any_active = true;
    highest = std::max(highest, other.client().priority());
  }
  others.any_higher = highest > seat.client().priority();
  Pace pace = pace_of(policy, others, settings_.window);
  // Who has waited long enough to be worth as much as the highest need not find the device empty.
  const std::uint64_t waited = now - std::min(now, std::max(first.submitted_at, seat.issued_at));
  const auto steps = static_cast<std::uint64_t>(highest - seat.client().priority());
  if (others.any_higher && waited > steps * aging_step_ns) pace.of_all = false;
  is_paced_ = pace.of_all;
  if (pacing_has_ended_.load(std::memory_order_relaxed)) return true;

  const std::uint32_t operations =
      (pace.of_all ? in_flight_ + callers_.load(std::memory_order_acquire) : seat.in_flight);
  const std::uint64_t ns = pace.of_all ? in_flight_ns_ : seat.in_flight_ns;
  if (operations < pace.least_operations) return true;
  if (operations >= pace.most_operations) return false;
  return ns + seat.estimates.of(first.request.kind) <= pace.most_ns;
}

Seat* Issuer::decide(std::uint64_t now) {
  const ScheduleRange range{"Policy:decide"};
  for (Waiting& waiting : waiting_) {
    if (has_stalled_beside_others(*waiting.seat, now)) let_through(*waiting.seat, now);
    if (waiting.seat->let_through == 0) continue;
    if (Seat* needed = first_needed_by(*waiting.seat)) {
      if (needed == waiting.seat) --waiting.seat->let_through;
      return needed;
    }
  }
  const Schedule policy = policy_.load(std::memory_order_relaxed);
  while (!candidates_.empty()) {
    const std::size_t best = choose(policy, candidates_, now);
    Seat& seat = *waiting_[best].seat;
    if (Seat* needed = first_needed_by(seat)) {
      if (keeps_pace(seat, now)) return needed;
      break;  // whoever comes behind it in the policy's order is not to pass it
    }
    candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(best));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(best));
  }
  for (Seat& seat : seats_) {
    if (has_stalled(seat, now)) let_through(seat, now);
  }
  return nullptr;
}

bool Issuer::is_in_flight(StreamId stream) const {
  return batch_.stream == stream ||
         std::any_of(flying_.begin(), flying_.end(),
                     [&](const Batch& batch) { return batch.stream == stream; });
}

bool Issuer::has_stalled(const Seat& seat, std::uint64_t now) const {
  return now - std::max(progress_at_, seat.let_through_at) >= in_ns(settings_.patience);
}

// Nothing of this lane is done, while others may go on.
bool Issuer::has_stalled_beside_others(const Seat& seat, std::uint64_t now) const {
  return seat.in_flight != 0 &&
         now - seat.done_at >= times_patience_beside_others * in_ns(settings_.patience) &&
         now - seat.let_through_at >= in_ns(settings_.patience);
}

// Longer than what is in flight is known to take.
bool Issuer::nothing_is_done(std::uint64_t now) const {
  std::uint64_t longest = 0;
  for (const Batch& batch : flying_) longest = std::max(longest, batch.estimate_ns);
  const std::uint64_t patience = in_ns(settings_.patience);
  return now - done_at_ >= patience + std::min(longest, times_patience_beside_others * patience);
}

// What is in flight may be waiting for what is not: for a value that another stream writes, or in a
// host function. Only streams with nothing in flight can help, so only up to them. Or it waits for
// what a thread does next that waits for the lane: then for all that the lane holds. By and by,
// since a kernel that takes long looks the same.
void Issuer::let_through(Seat& seat, std::uint64_t now) {
  const bool beside_others = has_stalled_beside_others(seat, now);
  const auto waiting = static_cast<std::uint32_t>(seat.lane->waiting());
  if (waiting == 0) return;
  seat.let_through_at = now;
  for (std::uint32_t further = 0; further < waiting; ++further) {
    const Operation* operation = seat.lane->behind_first(further);
    if (operation == nullptr) break;
    const StreamState* stream = operation->request.stream;
    if (stream != nullptr && is_in_flight(stream->id)) continue;
    seat.let_through = further + 1;
    return;
  }
  if (!seat.lane->is_waited_for() || !(beside_others || nothing_is_done(now))) return;
  seat.let_through = std::min(waiting, seat.next_to_let_through);
  seat.next_to_let_through = 2 * seat.let_through;
}

}  // namespace cuvmm
