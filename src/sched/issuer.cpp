// SPDX-License-Identifier: Apache-2.0
#include "sched/issuer.hpp"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <mutex>

#include "base/spin_pause.hpp"
#include "base/start_thread.hpp"
#include "sched/schedule_events.hpp"

namespace cuvmm {
namespace {

constexpr std::uint64_t look_every_ns = 20'000;
constexpr std::uint32_t looks_before_sleep = 200;
constexpr std::uint64_t calls_of_a_turn = 3;  // the caller's own, and two marks
constexpr std::uint64_t longest_to_keep_order_ns = 2'000'000'000;

}  // namespace

Issuer::Issuer(int device, DriverSide& side, Failures& failures, const ScheduleSettings& settings,
               const std::atomic<Schedule>& policy)
    : device_(device), side_(side), failures_(failures), settings_(settings), policy_(policy) {}

Issuer::~Issuer() = default;

Result<void> Issuer::start() {
  has_stopped_.store(0);
  const int failed = start_detached_thread(&Issuer::run_thread, this);
  if (failed != 0) {
    has_stopped_.store(1);
    return Error{.kind = ErrorKind::SystemFailed,
                 .system_code = failed,
                 .doing = "start issuing thread",
                 .subject = "pthread_create"};
  }
  return {};
}

bool Issuer::stop(Duration at_most) {
  stops_.store(true);
  wake();
  const std::uint64_t until = now_ns() + in_ns(at_most);
  while (has_stopped_.load() == 0 && now_ns() < until) {
    wait_while(has_stopped_, 0, Duration{1'000});
  }
  return has_stopped_.load() != 0;
}

void* Issuer::run_thread(void* issuer) {
  auto* self = static_cast<Issuer*>(issuer);
  const std::string name = "cuvmm-issue-" + std::to_string(self->device_);
  ::pthread_setname_np(::pthread_self(), name.c_str());
  ::prctl(PR_SET_TIMERSLACK, 1'000UL);  // for accurate short sleeps
  self->run();
  self->abandon_lanes();
  self->has_stopped_.store(1);
  wake_all(self->has_stopped_);
  return nullptr;
}

void Issuer::run() {
  side_.thread_begins();
  std::uint32_t idle = 0;
  while (!stops_.load(std::memory_order_relaxed)) {
    if (step()) {
      idle = 0;
    } else {
      rest(idle);
    }
  }
}

void Issuer::abandon_lanes() {
  take_news();
  for (LaneState& state : lane_states_) state.lane->abandon();
}

// Spins for a moment, since work often comes soon, then sleeps. While operations wait for the
// device it looks again soon, later the longer nothing has happened: a small part of what they have
// waited for already.
void Issuer::rest(std::uint32_t& idle) {
  if (++idle < looks_before_sleep && waiting_.empty()) {
    spin_pause();
    return;
  }
  sleeps_.store(1, std::memory_order_seq_cst);
  // Pairs with a caller that publishes its operation and then checks whether this thread sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool nothing_came =
      !has_news_.load(std::memory_order_seq_cst) && !stops_.load() &&
      (!waiting_.empty() ||
       std::none_of(lane_states_.begin(), lane_states_.end(),
                    [](const LaneState& state) { return state.lane->first() != nullptr; }));
  if (nothing_came) {
    const bool is_busy = !waiting_.empty() || !flying_.empty() || batch_.lane != nullptr;
    const std::uint64_t quiet_us = (now_ns() - progress_at_) / 1000;
    const Duration nap = !waiting_.empty()
                             ? Duration{std::clamp<std::uint64_t>(quiet_us / 64, 5, 500)}
                         : idle < 10 * looks_before_sleep ? Duration{50}
                                                          : Duration{2'000};
    wait_while(sleeps_, 1, is_busy ? nap : Duration{1'000'000});
  }
  sleeps_.store(0);
}

void Issuer::wake() {
  sleeps_.store(0);
  wake_all(sleeps_);
}

void Issuer::add(Lane& lane) {
  const Holding holding{lock_};
  new_lanes_.push_back(&lane);
  has_news_.store(true, std::memory_order_seq_cst);
}

void Issuer::caller_is_done(const Batch& batch, bool is_marked) {
  if (is_marked) {
    const Holding holding{lock_};
    new_batches_.push_back(batch);
    has_news_.store(true, std::memory_order_seq_cst);
  }
  callers_.fetch_sub(1, std::memory_order_acq_rel);
  if (sleeps_.load(std::memory_order_seq_cst) != 0) wake();
}

const char* Issuer::call_in_progress(std::uint64_t& since) const {
  const std::uint32_t call = call_.load(std::memory_order_acquire);
  if (call >= call_count) return nullptr;
  since = call_since_.load(std::memory_order_relaxed);
  return all_calls()[call].symbol;
}

LaneState* Issuer::state_of(const Lane* lane) {
  for (LaneState& state : lane_states_) {
    if (state.lane == lane) return &state;
  }
  return nullptr;
}

void Issuer::take_news() {
  if (!has_news_.load(std::memory_order_acquire)) return;
  std::vector<Leaving> to_leave;
  take_news(to_leave);
  if (to_leave.empty()) return;
  for (const Leaving& leaving : to_leave) leave(leaving);
  contexts_left_.fetch_add(static_cast<std::uint32_t>(to_leave.size()));
  wake_all(contexts_left_);
}

void Issuer::take_news(std::vector<Leaving>& to_leave) {
  const Holding holding{lock_};
  has_news_.store(false, std::memory_order_relaxed);
  for (Lane* lane : new_lanes_) {
    LaneState& state = lane_states_.emplace_back();
    state.lane = lane;
    state.share_used = share_of_last_;
  }
  new_lanes_.clear();
  for (Batch& batch : new_batches_) {
    if (LaneState* state = state_of(batch.lane)) {
      state->in_flight += load_of(batch);
      in_flight_ += load_of(batch);
      queues_.marked(batch.stream, batch.queued_to);
      flying_.push_back(batch);
    }
  }
  new_batches_.clear();
  to_leave.swap(to_leave_);
}

bool Issuer::step() {
  take_news();
  const std::uint64_t now = now_ns();
  if (now - looked_at_ >= look_every_ns || !waiting_.empty()) look_at_device(now);
  gather(now);
  if (waiting_.empty()) {
    progress_at_ = now;
    if (!may_grow(now)) close_batch();
    return false;
  }
  LaneState* next = decide(now);
  if (next == nullptr) {
    close_batch();
    warn_of_long_waits(now);
    return false;
  }
  if (trace_is_on()) [[unlikely]]
    trace_decided(*next->lane, *next->lane->first(), device_, candidates_.size(), policy_.load());
  issue(*next, now);
  waiting_.clear();  // stale once something has been issued
  return true;
}

// The program was told that this ordering holds, and what it has queued since relies on that. If
// the driver refuses the record or wait, the thread keeps the order by waiting here itself; but not
// indefinitely, since the awaited work may in turn wait for queued operations.
void Issuer::has_failed(const Request& request, CUresult answer) {
  failures_.add(request, answer);
  if (request.event_use == EventUse::None) return;
  FutexWord nothing_changes{0};
  const std::uint64_t until = now_ns() + longest_to_keep_order_ns;
  while (side_.is_still_pending(request) && !stops_.load() && now_ns() < until) {
    wait_while(nothing_changes, 0, Duration{50});
  }
}

// Returns 0 if the caller is to make no marks.
std::uint64_t Issuer::submit_turn(StreamId stream) {
  if (!queues_.is_long(stream) || queues_.needs_mark(stream)) {
    return queues_.submitted(stream, calls_of_a_turn);
  }
  queues_.submitted(stream);
  return 0;
}

void Issuer::issue(LaneState& state, std::uint64_t now) {
  Lane& lane = *state.lane;
  Operation& operation = *lane.first();
  const Request request = operation.request;
  const std::uint64_t queued = now - std::min(now, operation.submitted_at);
  const std::uint64_t estimate = state.estimates.of(request.kind);
  progress_at_ = now;
  state.last_turn = ++turns_;
  state.issued_at = now;
  state.share_used += state.by_weight(estimate);
  share_of_last_ = state.share_used;
  lane.client().count_issued(queued);
  if (request.issued_by == IssuedBy::Caller) {
    close_batch();
    *request.queued_to = submit_turn(request.stream->id);
    caller_begins();
  } else {
    if (current_ != request.context) side_.make_current(current_ = request.context);
    join_batch(state, request, estimate, now);
    if (request.stream != nullptr) queues_.submitted(request.stream->id);
    call_since_.store(now, std::memory_order_relaxed);
    call_.store(static_cast<std::uint32_t>(request.call), std::memory_order_release);
    const CUresult answer = operation.action.make();
    call_.store(no_call_now, std::memory_order_release);
    if (answer == CUDA_SUCCESS) {
      lane.client().count_bytes(request.bytes);
    } else {
      has_failed(request, answer);
    }
  }
  if (trace_is_on()) [[unlikely]]
    trace_issued(lane, operation, device_, queued);
  lane.first_is_issued();
}

}  // namespace cuvmm
