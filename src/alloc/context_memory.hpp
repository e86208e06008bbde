// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "alloc/arena/arena.hpp"
#include "alloc/device_memory.hpp"
#include "alloc/moved.hpp"
#include "alloc/windows/windows.hpp"

namespace cuvmm {

// The blocking memory of one context.
class ContextMemory {
 public:
  // `quiescence` keeps work out while live memory moves.
  static Result<std::unique_ptr<ContextMemory>> create(const Driver& driver, DeviceMemory& device,
                                                       StreamOrder& order, CUcontext context,
                                                       const AccessSet& access,
                                                       Quiescence& quiescence);

  CUcontext context() const { return context_; }
  DeviceMemory& device() const { return device_; }

  static Served served_as(Size asked) {
    return asked < smallest_window ? Served::Small : Served::Window;
  }
  Result<Allocation*> allocate(Size asked, const GrowHint& grow_hint, MemoryPressure& pressure);
  // The memory is reused once the ticket's work is done; an empty ticket means that it is done.
  void free_after(Allocation& allocation, const FreeTicket& ticket);
  // Call after a window's chunks were mapped behind another allocation and the window has ended.
  void handed_over(Size asked) { requested_.fetch_sub(asked, std::memory_order_relaxed); }
  // The allocation does not move from now on.
  void pin(Allocation& allocation, std::uint8_t why);

  void unpin(Allocation& allocation, std::uint8_t why);

  // The chunks of a pinned allocation.
  ChunksBehind chunks_behind(const Allocation& allocation) const;

  // Sets the access of all devices to the context's memory.
  Result<void> set_access(const AccessSet& access);

  Size requested() const { return requested_.load(std::memory_order_relaxed); }  // live bytes
  void list_held(std::vector<HeldChunk>& held) const {
    small_->eviction().list_held(held);
    windows_->eviction().list_held(held);
  }
  void begin_eviction(EvictionSet& evicted) {
    small_->eviction().begin_eviction(evicted);
    windows_->eviction().begin_eviction(evicted);
  }

  // Mapped but unallocated bytes: on the device, and elsewhere.
  Size mapped_free() const;
  Size spilled_free() const { return small_->spilled_free(); }
  // Releases up to `wanted` bytes of it for other uses of the device's memory. Returns how much.
  Size release(Size wanted);
  Size release_cheap(Size wanted) { return windows_->release_cheap(wanted); }
  Moved moved() const;
  std::size_t compacted_blocks() const { return windows_->counters().compacted_blocks; }  // so far

  template <class Visit>
  void for_each_region(Visit visit) const {
    visit(small_->use());
    visit(windows_->use());
  }
  // See Arena::trace_holdings().
  void trace_holdings() const {
    small_->trace_holdings();
    windows_->trace_holdings();
  }

  // The submission epoch that the last wait for all of the context's work covered
  // (SubmissionEpoch).
  std::atomic<std::uint64_t>& covered_note() { return covered_note_; }

  // Holds the blocks from 64 KiB up.
  Windows& windows() const { return *windows_; }
  AccessSet access() const { return small_->access(); }

  // Releases everything, after the context and its work are gone. The program's allocations of it
  // cease to exist.
  void end();
  bool has_ended() const { return ended_.load(std::memory_order_acquire); }

  InvariantViolation violation() const;

 private:
  ContextMemory(DeviceMemory& device, CUcontext context) : device_(device), context_(context) {}

  static constexpr Size smallest_window = 64 * KiB;

  DeviceMemory& device_;
  const CUcontext context_;
  std::unique_ptr<Arena> small_;
  std::unique_ptr<Windows> windows_;
  std::atomic<Size> requested_{0};
  std::atomic<std::uint64_t> covered_note_{~std::uint64_t{0}};
  std::atomic<bool> ended_{false};
};

}  // namespace cuvmm
