// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "alloc/allocation.hpp"
#include "alloc/arena/arena.hpp"
#include "alloc/device_memory.hpp"
#include "alloc/moved.hpp"
#include "alloc/pool_order.hpp"

namespace cuvmm {

// A number and the highest that it has been since that was last reset.
class HighMark {
 public:
  void add(Size size) { raise(now_.fetch_add(size, std::memory_order_relaxed) + size); }
  void take(Size size) { now_.fetch_sub(size, std::memory_order_relaxed); }
  // Where the number is somebody else's.
  void raise(Size to) {
    Size high = high_.load(std::memory_order_relaxed);
    while (high < to && !high_.compare_exchange_weak(high, to, std::memory_order_relaxed)) {
    }
  }
  Size now() const { return now_.load(std::memory_order_relaxed); }
  Size high() const { return high_.load(std::memory_order_relaxed); }
  void reset_high() { high_.store(now(), std::memory_order_relaxed); }
  void reset_high(Size to) { high_.store(to, std::memory_order_relaxed); }

 private:
  std::atomic<Size> now_{0};
  std::atomic<Size> high_{0};
};

// The memory of one stream-ordered pool of the program's. The pool's handle is a real one; this
// stands beside it.
class PoolMemory {
 public:
  static Result<std::unique_ptr<PoolMemory>> create(const Driver& driver, DeviceMemory& device,
                                                    StreamOrder& order, CUmemoryPool handle);

  CUmemoryPool handle() const { return handle_; }
  DeviceMemory& device() const { return device_; }

  // Usable by work that `stream` is given from now on.
  Result<Allocation*> allocate(Size asked, StreamId stream);
  void free(Allocation& allocation, const FreeTicket& ticket);
  // When it was allocated, work of other streams still used some of it, ahead of its stream.
  static bool is_behind_others(const Allocation& allocation) {
    return static_cast<const Block&>(allocation).is_behind_others;
  }
  // That it was allocated for.
  static StreamId stream_of(const Allocation& allocation) {
    return static_cast<const Block&>(allocation).stream;
  }

  Result<void> set_access(const AccessSet& access);
  AccessSet access() const;

  void list_held(std::vector<HeldChunk>& held) const {
    large_->list_held(held);
    small_->list_held(held);
  }
  void begin_eviction(EvictionSet& evicted) {
    large_->begin_eviction(evicted);
    small_->begin_eviction(evicted);
  }

  // Keeps no more than that. Returns what is kept.
  Size trim(Size keep);

  // The release threshold, and the moment at which it acts.
  void set_threshold(Size bytes) { threshold_.store(bytes); }
  void program_waited();

  Size used() const { return used_.now(); }
  Size used_high() const { return used_.high(); }
  Size reserved() const;
  Size reserved_high() const;
  void reset_used_high() { used_.reset_high(); }
  void reset_reserved_high() { reserved_.reset_high(reserved()); }
  // Mapped, and nobody's: on the device, and elsewhere.
  Size mapped_free() const;
  Size spilled_free() const { return large_->spilled_free() + small_->spilled_free(); }
  // Gives so much of it to the device's other memory, where there is so much. Returns how much.
  Size release(Size wanted);
  std::uint64_t moved_chunks() const;  // so far
  Moved moved() const;
  template <class Visit>
  void for_each_region(Visit visit) const {
    visit(large_->use());
    visit(small_->use());
  }
  // As Arena says.
  void tell_trace() const {
    large_->tell_trace();
    small_->tell_trace();
  }

  PoolOrder& order() { return order_; }

  // The program has destroyed the pool; its memory lives on until it is freed.
  void end() { ended_.store(true); }
  // Once it is freed and no work can use it any more, all of it and its addresses go back. Whether
  // that is done.
  bool settle_end();

  InvariantViolation violation() const;

 private:
  PoolMemory(DeviceMemory& device, StreamOrder& order, CUmemoryPool handle)
      : device_(device), handle_(handle), order_(order) {}

  // Small blocks apart, so that they leave no holes between large ones.
  Arena& arena_for(Size granted) const { return granted < smallest_large ? *small_ : *large_; }
  static constexpr Size smallest_large = 1 * MiB;

  Size mapped() const;

  DeviceMemory& device_;
  const CUmemoryPool handle_;
  PoolOrder order_;
  std::unique_ptr<Arena> large_;
  std::unique_ptr<Arena> small_;
  HighMark used_;
  std::atomic<Size> threshold_{0};
  std::atomic<Size> set_aside_{0};  // of what is mapped: counts as given back
  mutable HighMark reserved_;       // its high mark only; the arenas know the number
  std::atomic<bool> ended_{false};
};

}  // namespace cuvmm
