// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <vector>

#include "base/lock.hpp"
#include "driver/cuda.hpp"
#include "stream/free_ticket.hpp"

namespace cuvmm {

enum class StreamKind : std::uint8_t {
  Blocking,     // waits for the legacy stream, and the reverse
  NonBlocking,  // ordered only with itself
  Legacy,       // a context's default stream
  PerThread,    // a thread's default stream; it is blocking
  Everything,   // not a stream: all work that a context has been given
};

// A point in a stream's work. Once its events have completed, every free up to the tick is done.
struct Mark {
  std::uint64_t tick = 0;
  std::vector<CUevent> events;
  // The events cover nothing that was submitted after the free with this tick, so another stream
  // may wait for them. Inexact marks may only be queried.
  bool is_exact = false;
  // The event stands for work that the stream waits for by the legacy rule alone. The driver does
  // not count an event as work of its stream, so the hooks check the event as well when the program
  // synchronizes or queries the stream.
  bool is_barrier = false;
  // Of a barrier: it comes after all work of the other side up to this epoch.
  std::uint64_t epoch = 0;
};

// Covers every free on the stream, future ones included: the stream has ended.
inline constexpr std::uint64_t last_tick = ~std::uint64_t{0} >> 1;

// Everything known about one stream. The record outlives the stream.
struct StreamState {
  StreamId id = no_stream;
  CUcontext context = nullptr;
  CUstream handle = nullptr;  // nullptr: Everything
  StreamKind kind = StreamKind::Blocking;
  int device = 0;
  std::uint64_t thread = 0;  // of a PerThread stream

  std::atomic<std::uint64_t> tick{0};        // of the last free
  std::atomic<std::uint64_t> done{0};        // the last free known to be done
  std::atomic<std::uint64_t> waited_for{0};  // the last free that the program itself has waited for
  std::atomic<bool> ended{false};
  std::atomic<bool> context_ends{false};  // its handles and events end with it
  std::atomic<bool> knows_others{false};  // whether `known` holds anything
  // Whether it was seen to be idle before it was last captured.
  std::atomic<bool> was_idle_before_capture{false};
  // Epochs of the other side of the legacy barrier. The stream's future work is known to come after
  // that side's frees up to learnt_epoch; a barrier that has been added to `marks` covers
  // barrier_epoch.
  std::atomic<std::uint64_t> learnt_epoch{0};
  std::atomic<std::uint64_t> barrier_epoch{0};
  std::atomic<bool> has_barrier{false};  // whether one of `marks` is a barrier
  // A bit for each other device whose memory was freed on it.
  std::atomic<std::uint64_t> other_devices{0};
  // This many of the next frees leave a mark, because a caller asked for the stream's progress.
  std::atomic<int> marks_wanted{0};
  std::atomic<bool> has_marks{false};              // whether `marks` holds any
  std::atomic<std::uint64_t> freed_since_mark{0};  // bytes
  // Of Everything: as of this tick, some stream has ended without an event behind its work.
  std::atomic<std::uint64_t> unmarked_end{0};

  Lock lock{LockOrder::StreamOrder};  // guards the members below
  std::deque<Mark> marks;             // not known to have completed, in order
  std::vector<CUevent> spare_events;
  std::vector<CUevent> pinned_events;   // of marks: a thread is about to pass them to the driver
  std::vector<CUevent> retired_events;  // pinned ones whose marks are gone
  int fruitless_polls = 0;              // in a row
  std::vector<CUevent> left_behind;     // of Everything: ended streams' events, for the next mark
  // The last free of each other stream that is ordered before this stream's future work.
  std::vector<FreeTicket> known;
  std::size_t known_when_pruned = 0;  // how many remained

  bool is_blocking() const { return kind == StreamKind::Blocking || kind == StreamKind::PerThread; }
  bool has_unfinished() const { return done.load() < tick.load(); }
  bool has_unwaited() const { return waited_for.load() < tick.load(); }
  bool is_done(std::uint64_t at) const { return done.load(std::memory_order_acquire) >= at; }
  // For Everything. From now on, only a wait of the program's for the context tells that all of its
  // work is done.
  void stream_ended_unmarked() { raise(unmarked_end, ticket().tick); }
  bool has_unmarked_end() const { return !is_done(unmarked_end.load(std::memory_order_acquire)); }
  FreeTicket ticket() { return {id, tick.fetch_add(1, std::memory_order_acq_rel) + 1}; }
  bool leaves_marks() const {
    return kind == StreamKind::PerThread || marks_wanted.load(std::memory_order_relaxed) > 0;
  }

  // An existing mark completes before any new one, so marks are requested only if there is none.
  void request_marks() {
    constexpr int marks_a_request = 16;
    if (has_marks.load(std::memory_order_relaxed)) return;
    marks_wanted.store(marks_a_request, std::memory_order_relaxed);
  }

  void frees_memory_of(int of) {
    if (of != device) other_devices.fetch_or(bit_of(of), std::memory_order_relaxed);
  }
  bool has_freed_memory_of(int of) const {
    return of == device || (other_devices.load(std::memory_order_relaxed) & bit_of(of)) != 0;
  }

  // Everything freed up to `at` is done.
  void advance(std::uint64_t at) { raise(done, at); }
  void has_been_waited_for(std::uint64_t at) { raise(waited_for, at); }
  void has_barrier_of(std::uint64_t epoch) { raise(barrier_epoch, epoch); }

  // The barrier that comes after all others; nullptr if there is none. Threads may add barriers in
  // another order than that in which they recorded them. The caller holds the lock.
  Mark* last_barrier() {
    Mark* last = nullptr;
    for (Mark& mark : marks) {
      if (mark.is_barrier && (last == nullptr || mark.epoch >= last->epoch)) last = &mark;
    }
    return last;
  }

 private:
  static std::uint64_t bit_of(int of) { return std::uint64_t{1} << of; }
  static void raise(std::atomic<std::uint64_t>& to, std::uint64_t at) {
    std::uint64_t before = to.load(std::memory_order_relaxed);
    while (before < at && !to.compare_exchange_weak(before, at, std::memory_order_acq_rel)) {
    }
  }
};

// The legacy stream and the blocking streams of one context wait for each other's earlier work.
inline bool waits_for(const StreamState& later, const StreamState& earlier) {
  if (later.context != earlier.context) return false;
  return (later.kind == StreamKind::Legacy && earlier.is_blocking()) ||
         (earlier.kind == StreamKind::Legacy && later.is_blocking());
}

}  // namespace cuvmm
