// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "alloc/allocation.hpp"
#include "alloc/arena/arena.hpp"
#include "alloc/device_memory.hpp"
#include "alloc/moved.hpp"
#include "alloc/pool_order.hpp"

namespace cuvmm {

// A number and its highest value since the last reset.
class HighMark {
 public:
  // Returns the number afterwards.
  Size add(Size size) {
    const Size now = now_.fetch_add(size, std::memory_order_relaxed) + size;
    raise(now);
    return now;
  }
  void take(Size size) { now_.fetch_sub(size, std::memory_order_relaxed); }
  // For a number that is kept elsewhere.
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

// The memory of one of the program's stream-ordered pools. The handle is that of a real driver
// pool, which this object accompanies.
class PoolMemory {
 public:
  // `compactor`: nullptr if live memory never moves.
  static Result<std::unique_ptr<PoolMemory>> create(const Driver& driver, DeviceMemory& device,
                                                    StreamOrder& order, CUmemoryPool handle,
                                                    Compactor* compactor);

  CUmemoryPool handle() const { return handle_; }
  DeviceMemory& device() const { return device_; }

  // The memory can be used by work submitted to `stream` from now on.
  Result<Allocation*> allocate(Size asked, StreamId stream, MemoryPressure& pressure);
  void free(Allocation& allocation, const FreeTicket& ticket);
  // For an allocation that the program does not get, and whose facts were never set.
  void take_back(Allocation& allocation, Size asked, const FreeTicket& ticket);
  void pin(Allocation& allocation, std::uint8_t why) {
    auto& block = static_cast<Block&>(allocation);
    arena_of(block).pin(block, why);
  }
  // See Arena::could_share() and Arena::share().
  Size could_share(Size wanted);
  Result<Size> share(Size wanted, const CopyBy& copy);
  // Whether, when it was allocated, work of other streams still used some of it, ordered before its
  // own stream's later work.
  static bool is_behind_others(const Allocation& allocation) {
    return static_cast<const Block&>(allocation).is_behind_others;
  }
  // The stream for which it was allocated.
  static StreamId stream_of(const Allocation& allocation) {
    return static_cast<const Block&>(allocation).stream;
  }

  // Gives these devices the access that the driver's pool gives them. All or nothing: if it fails,
  // the driver's pool gets back the access of before. Call after each change of the driver's pool.
  // Of several threads' changes none is lost.
  Result<void> follow_access(std::span<const int> devices);
  AccessSet access() const;

  void list_held(std::vector<HeldChunk>& held) const {
    large_->eviction().list_held(held);
    small_->eviction().list_held(held);
  }
  void begin_eviction(EvictionSet& evicted) {
    large_->eviction().begin_eviction(evicted);
    small_->eviction().begin_eviction(evicted);
  }

  // Releases free memory until at most `keep` bytes are kept. Returns how many are kept.
  Size trim(Size keep);

  // The release threshold, and the event that applies it.
  void set_threshold(Size bytes) { threshold_.store(bytes); }
  void program_waited();

  Size used() const { return used_.now(); }
  Size used_high() const { return used_.high(); }
  Size reserved() const;
  Size reserved_high() const;
  void reset_used_high() { used_.reset_high(); }
  void reset_reserved_high() { reserved_.reset_high(reserved()); }
  // Mapped but unallocated bytes: on the device, and elsewhere.
  Size mapped_free() const;
  Size spilled_free() const { return large_->spilled_free() + small_->spilled_free(); }
  // Releases up to `wanted` bytes of it for other uses of the device's memory. Returns how much.
  Size release(Size wanted);
  std::uint64_t moved_chunks() const;        // so far
  std::uint64_t compacted_granules() const;  // with live memory, so far
  Moved moved() const;
  template <class Visit>
  void for_each_region(Visit visit) const {
    visit(large_->use());
    visit(small_->use());
  }
  // See Arena::trace_holdings().
  void trace_holdings() const {
    large_->trace_holdings();
    small_->trace_holdings();
  }

  PoolOrder& order() { return order_; }

  // The program has destroyed the pool; its memory lives on until it is freed.
  void end() { ended_.store(true); }
  // Once all of it is freed and no work can use it, releases the memory and its addresses. Returns
  // whether that is done.
  bool settle_end();

  InvariantViolation violation() const;

 private:
  PoolMemory(const Driver& driver, DeviceMemory& device, StreamOrder& order, CUmemoryPool handle)
      : driver_(driver), device_(device), handle_(handle), order_(order) {}

  // Small blocks have their own arena, so that they leave no holes between large ones.
  Arena& arena_for(Size granted) const { return granted < smallest_large ? *small_ : *large_; }
  Arena& arena_of(const Block& block) const {
    return large_->contains(block.address()) ? *large_ : *small_;
  }
  static constexpr Size smallest_large = 1 * MiB;

  Size mapped() const;
  Result<void> set_access(const AccessSet& access);
  Result<AccessSet> access_of_the_drivers(std::span<const int> devices) const;
  void give_the_drivers(std::span<const int> devices, const AccessSet& access) const;

  const Driver& driver_;
  DeviceMemory& device_;
  const CUmemoryPool handle_;
  PoolOrder order_;
  std::unique_ptr<Arena> large_;
  std::unique_ptr<Arena> small_;
  Lock access_lock_{LockOrder::Pools};  // held while the access changes
  HighMark used_;
  std::atomic<Size> threshold_{0};
  std::atomic<Size> set_aside_{0};  // mapped bytes that count as released
  mutable HighMark reserved_;       // the high mark only; the arenas know the number
  std::atomic<bool> ended_{false};
};

}  // namespace cuvmm
