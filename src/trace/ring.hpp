// SPDX-License-Identifier: Apache-2.0
// The buffer between a thread that records events and the writer's thread: one puts records in, the
// other takes them out, and neither ever waits for the other.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "trace/futex.hpp"
#include "trace/record.hpp"

namespace cuvmm {

// The thread that fills a ring.
struct RingOwner {
  std::uint32_t thread = 0;         // its number in records
  std::uint64_t system_number = 0;  // gettid()
  char name[16] = {};
};

class alignas(64) TraceRing {
 public:
  // Allocates the ring directly from the system. nullptr if there is no memory. `capacity` must be
  // a power of two.
  static TraceRing* create(std::uint32_t capacity);
  static void destroy(TraceRing* ring);

  std::uint32_t capacity() const { return capacity_; }

  // For the owning thread only. Adds the event, with `time` and the thread's number.
  void push(const TraceRecord& event, std::uint64_t time) {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    if (head - seen_tail_ >= capacity_ / 2) [[unlikely]] {
      if (!has_room(head)) return;
    }
    TraceRecord& record = records()[head & (capacity_ - 1)];
    record = event;
    record.time = time;
    record.thread = owner_.thread;
    head_.store(head + 1, std::memory_order_release);
  }

  // For one consumer at a time. Passes the records to `take` in one or two spans, which are valid
  // only during the call.
  template <class Take>
  void drain(Take&& take) {
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    for (std::uint64_t tail = tail_.load(std::memory_order_relaxed); tail != head;) {
      const std::uint64_t at = tail & (capacity_ - 1);
      const std::uint64_t count = std::min<std::uint64_t>(head - tail, capacity_ - at);
      take(std::span<const TraceRecord>{records() + at, count});
      tail += count;
      tail_.store(tail, std::memory_order_release);
    }
  }
  // Discards the records and the lost count accumulated so far.
  void discard() {
    tail_.store(head_.load(std::memory_order_acquire), std::memory_order_release);
    lost_before_ = lost_.load(std::memory_order_relaxed);
    is_announced_ = false;
  }
  std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed) - lost_before_; }

  // True once per owner and trace.
  bool announce() { return !std::exchange(is_announced_, true); }
  const RingOwner& owner() const { return owner_; }

  // A ring is owned until its thread ends, and becomes free once it has been drained after that.
  bool try_own(const RingOwner& owner);
  void end() { state_.store(State::Ended, std::memory_order_release); }
  bool has_ended() const { return state_.load(std::memory_order_acquire) == State::Ended; }
  void set_free();

  TraceRing* next = nullptr;  // in the list of all rings

 private:
  enum class State : std::uint8_t { Free, Owned, Ended };

  explicit TraceRing(std::uint32_t capacity) : capacity_(capacity) {}
  TraceRecord* records() { return reinterpret_cast<TraceRecord*>(this + 1); }
  bool has_room(std::uint64_t head);

  const std::uint32_t capacity_;
  std::atomic<State> state_{State::Free};
  RingOwner owner_;  // written by the owner before its first record

  alignas(64) std::atomic<std::uint64_t> head_{0};  // the owner writes this line
  std::uint64_t seen_tail_ = 0;
  std::atomic<std::uint64_t> lost_{0};

  alignas(64) std::atomic<std::uint64_t> tail_{0};  // the consumer writes this line
  std::uint64_t lost_before_ = 0;
  bool is_announced_ = false;
};

// Wakes the writer's thread, when a ring is half full or the thread is needed at once.
class Doorbell {
 public:
  void ring() {
    if (rung_.load(std::memory_order_relaxed) == 0 &&
        rung_.exchange(1, std::memory_order_release) == 0) {
      wake_all(rung_);
    }
  }
  void wait(Duration at_most) {
    if (rung_.load(std::memory_order_relaxed) == 0) wait_while(rung_, 0, at_most);
    rung_.exchange(0, std::memory_order_acquire);
  }
  void forget() { rung_.store(0, std::memory_order_relaxed); }

 private:
  FutexWord rung_{0};
};

// All rings of the process. Rings are never released while threads may record, so no thread can
// hold a dangling one.
namespace trace_rings {

extern constinit Doorbell doorbell;

// Sets the capacity of rings created from now on. The consumer calls it before recording begins.
void start(std::uint32_t capacity);

template <class Visit>
void for_each(Visit&& visit);
std::uint64_t lost();          // since start(), in all threads
std::uint32_t thread_count();  // threads that have ever recorded

// For a forked child, in which only the forking thread continues.
void forget_after_fork();

namespace detail {
extern constinit std::atomic<TraceRing*> first;
}

template <class Visit>
void for_each(Visit&& visit) {
  for (TraceRing* ring = detail::first.load(std::memory_order_acquire); ring; ring = ring->next) {
    visit(*ring);
  }
}

}  // namespace trace_rings

}  // namespace cuvmm
