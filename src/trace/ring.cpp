// SPDX-License-Identifier: Apache-2.0
#include "trace/ring.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>

#include <new>

#include "base/clock.hpp"
#include "base/thread_key.hpp"
#include "trace/event_log.hpp"
#include "trace/record_event.hpp"

namespace cuvmm {

TraceRing* TraceRing::create(std::uint32_t capacity) {
  const int kept = errno;
  void* memory = ::mmap(nullptr, sizeof(TraceRing) + capacity * sizeof(TraceRecord),
                        PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = kept;
  return memory == MAP_FAILED ? nullptr : new (memory) TraceRing{capacity};
}

void TraceRing::destroy(TraceRing* ring) {
  ::munmap(ring, sizeof(TraceRing) + ring->capacity_ * sizeof(TraceRecord));
}

bool TraceRing::has_room(std::uint64_t head) {
  seen_tail_ = tail_.load(std::memory_order_acquire);
  const std::uint64_t used = head - seen_tail_;
  if (used < capacity_ / 2) return true;
  trace_rings::doorbell.ring();
  if (used < capacity_) return true;
  lost_.store(lost_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return false;
}

bool TraceRing::try_own(const RingOwner& owner) {
  State expected = State::Free;
  if (!state_.compare_exchange_strong(expected, State::Owned, std::memory_order_acquire)) {
    return false;
  }
  owner_ = owner;
  return true;
}

void TraceRing::set_free() {
  is_announced_ = false;
  state_.store(State::Free, std::memory_order_release);
}

namespace trace_rings {
namespace detail {
constinit std::atomic<TraceRing*> first{nullptr};
}

constinit Doorbell doorbell;

namespace {

// A thread's reference to its ring: a single load away (initial-exec TLS), without a destructor,
// and safe against interruption by a signal handler that records too.
struct ThisThread {
  TraceRing* ring = nullptr;
  bool is_recording = false;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local ThisThread this_thread;

constinit std::atomic<std::uint32_t> capacity{8192};
constinit std::atomic<std::uint32_t> threads{0};
constinit std::atomic<std::uint64_t> lost_without_ring{0};

// So that the ring of a thread that has ended can be reused. If no key is available, rings are just
// not reused.
void hand_back(void*) {
  if (TraceRing* ring = std::exchange(this_thread.ring, nullptr)) ring->end();
}
constinit ThreadKey end_of_thread{&hand_back};

RingOwner new_owner() {
  RingOwner owner{.thread = threads.fetch_add(1, std::memory_order_relaxed),
                  .system_number = static_cast<std::uint64_t>(::syscall(SYS_gettid))};
  ::prctl(PR_GET_NAME, owner.name);
  return owner;
}

void add_to_list(TraceRing* ring) {
  ring->next = detail::first.load(std::memory_order_relaxed);
  while (!detail::first.compare_exchange_weak(ring->next, ring, std::memory_order_release,
                                              std::memory_order_relaxed)) {
  }
}

TraceRing* free_ring(const RingOwner& owner) {
  TraceRing* found = nullptr;
  for_each([&](TraceRing& ring) {
    const bool fits = ring.capacity() == capacity.load(std::memory_order_relaxed);
    if (found == nullptr && fits && ring.try_own(owner)) found = &ring;
  });
  return found;
}

// Handles a thread's first event. Takes no lock that a forked child could inherit.
[[gnu::noinline]] TraceRing* first_event() {
  const RingOwner owner = new_owner();
  TraceRing* ring = free_ring(owner);
  if (ring == nullptr) {
    ring = TraceRing::create(capacity.load(std::memory_order_relaxed));
    if (ring == nullptr || !ring->try_own(owner)) return nullptr;
    add_to_list(ring);
  }
  this_thread.ring = ring;
  end_of_thread.set(ring);
  return ring;
}

void count_lost_without_ring() {
  lost_without_ring.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void start(std::uint32_t records) {
  capacity.store(records, std::memory_order_relaxed);
  lost_without_ring.store(0, std::memory_order_relaxed);
  for_each([](TraceRing& ring) {
    ring.discard();
    if (ring.has_ended()) ring.set_free();
  });
}

std::uint64_t lost() {
  std::uint64_t sum = lost_without_ring.load(std::memory_order_relaxed);
  for_each([&](const TraceRing& ring) { sum += ring.lost(); });
  return sum;
}

std::uint32_t thread_count() {
  return threads.load(std::memory_order_relaxed);
}

void forget_after_fork() {
  // A signal handler may have forked while this thread was recording.
  const TraceRing* in_use = this_thread.is_recording ? this_thread.ring : nullptr;
  this_thread.ring = nullptr;
  end_of_thread.clear();
  threads.store(0, std::memory_order_relaxed);
  TraceRing* ring = detail::first.exchange(nullptr, std::memory_order_relaxed);
  while (ring != nullptr) {
    TraceRing* gone = std::exchange(ring, ring->next);
    if (gone != in_use) TraceRing::destroy(gone);
  }
}

}  // namespace trace_rings

constinit std::atomic<std::uint8_t> detail::events_are_wanted{0};

void detail::record_event(const TraceRecord& event) {
  const std::uint8_t wanted = events_are_wanted.load(std::memory_order_relaxed);
  if ((wanted & wanted_by_log) != 0) log_event(event);
  if ((wanted & wanted_by_trace) == 0) return;
  using trace_rings::this_thread;
  // A signal handler that interrupted this function must not touch the half-written record.
  if (this_thread.is_recording) {
    trace_rings::count_lost_without_ring();
    return;
  }
  this_thread.is_recording = true;
  std::atomic_signal_fence(std::memory_order_seq_cst);

  TraceRing* ring = this_thread.ring;
  if (ring == nullptr) [[unlikely]]
    ring = trace_rings::first_event();
  if (ring != nullptr) {
    ring->push(event, event.time != 0 ? event.time : now_ns());
  } else {
    trace_rings::count_lost_without_ring();
  }

  std::atomic_signal_fence(std::memory_order_seq_cst);
  this_thread.is_recording = false;
}

}  // namespace cuvmm
