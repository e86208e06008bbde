// SPDX-License-Identifier: Apache-2.0
// cuvmm's allocations and frees as operations of their streams, and the events that represent them.
#include <algorithm>
#include <mutex>

#include "driver/current_context.hpp"
#include "stream/stream_clock.hpp"

namespace cuvmm {

using Operation = StreamClock::Operation;

// Only the legacy rule makes an operation wait natively for other streams' work without an event of
// the program's. A free always waits this way. An allocation waits only if its memory is still used
// by that work; unused memory is available at once.
Operation::Operation(StreamClock& clock, StreamState& stream, Kind kind, std::uint64_t freed)
    : clock_(clock), stream_(stream) {
  if (clock_.has_other_side(stream_, epoch_)) {
    clock_.learn_other_side(stream_, epoch_);
    is_ahead_of_barrier_ = !clock_.program_.sees_everything() ||
                           stream_.barrier_epoch.load(std::memory_order_acquire) < epoch_;
  }
  if (kind == Kind::Allocation) return;
  before_ = stream_.tick.load(std::memory_order_acquire);
  if (is_ahead_of_barrier_) {
    answer_ = record_barrier();
  } else if (clock_.leaves_mark(stream_, freed)) {
    clock_.record_operation(stream_, event_);  // the mark is optional
  }
}

Operation::~Operation() {
  if (event_ != nullptr) {
    clock_.add_mark(
        stream_, {.tick = before_, .events = {event_}, .is_barrier = is_barrier_, .epoch = epoch_});
  }
  if (stream_.kind == StreamKind::Legacy) {
    clock_.program_.legacy.legacy_submitted();
  } else if (stream_.is_blocking()) {
    clock_.program_.legacy.blocking_submitted();
  }
}

CUresult Operation::record_barrier() {
  const CUresult answer = clock_.record_operation(stream_, event_);
  if (answer != CUDA_SUCCESS) return answer;
  is_barrier_ = true;
  return CUDA_SUCCESS;
}

FreeTicket Operation::freed() {
  const bool leaves_mark = event_ != nullptr;
  const FreeTicket ticket =
      leaves_mark
          ? clock_.add_free(
                stream_,
                {.tick = before_, .events = {event_}, .is_barrier = is_barrier_, .epoch = epoch_})
          : stream_.ticket();
  if (ticket.tick == 1) clock_.freeing_streams_.fetch_add(1, std::memory_order_relaxed);
  if (!leaves_mark) return ticket;
  event_ = nullptr;
  if (stream_.marks_wanted.load(std::memory_order_relaxed) > 0) {
    stream_.marks_wanted.fetch_sub(1, std::memory_order_relaxed);
  }
  return ticket;
}

CUresult Operation::granted_behind_others() {
  if (!is_ahead_of_barrier_) return CUDA_SUCCESS;
  before_ = stream_.tick.load(std::memory_order_acquire);
  return record_barrier();
}

// A mark costs a driver call, so until memory runs short only large frees leave one. They have to:
// an event recorded later would also wait for later work.
bool StreamClock::leaves_mark(StreamState& stream, std::uint64_t freed) const {
  constexpr std::uint64_t much = std::uint64_t{32} << 20;
  const std::uint64_t since = stream.freed_since_mark.fetch_add(freed, std::memory_order_relaxed);
  const bool is_short = is_short_.load(std::memory_order_relaxed) &&
                        freeing_streams_.load(std::memory_order_relaxed) > 1;
  if (!stream.leaves_marks() && !is_short && since + freed < much) return false;
  stream.freed_since_mark.store(0, std::memory_order_relaxed);
  return true;
}

// Whether the legacy rule may order the stream after other work, and the epoch of that work.
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

// Records that the stream's future work comes after the other side's earlier work, with or without
// a barrier event.
void StreamClock::learn_other_side(StreamState& stream, std::uint64_t epoch) {
  if (program_.sees_everything() && stream.learnt_epoch.load(std::memory_order_acquire) == epoch) {
    return;
  }
  learn(stream, other_side_of(stream));
  stream.learnt_epoch.store(epoch, std::memory_order_release);
}

// Pins only the last barrier, which comes after all others.
StreamClock::PlacedOperations::PlacedOperations(StreamClock& clock, StreamName name)
    : clock_(clock), stream_(clock.table_.find(name)) {
  if (stream_ == nullptr || !stream_->has_barrier.load(std::memory_order_acquire)) return;
  const Holding holding{stream_->lock};
  const Mark* const last = stream_->last_barrier();
  if (last == nullptr) return;
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
  // This thread cannot leave a mark on another thread's default stream.
  if (state->kind == StreamKind::PerThread) return ticket_of_all(state->context);
  return state->ticket();
}

}  // namespace cuvmm
