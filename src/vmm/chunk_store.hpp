// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "vmm/free_chunks.hpp"
#include "vmm/memory_in_hand.hpp"
#include "vmm/reclaim.hpp"

namespace cuvmm {

// The bytes that a store holds at one location. physical_in_use, physical_free and
// physical_unreleased count against the budget.
struct ChunkCounters {
  Size physical_in_use = 0;    // chunks with references; including exported ones
  Size physical_free = 0;      // kept for later requests
  Size physical_exported = 0;  // of those in use: another process may hold them
  Size physical_unreleased =
      0;  // no longer used, but the driver refused its release; to be tried again
};

// A device's chunks: the free ones, and the limit. A store may also hold memory of other locations,
// the host's or a neighbour's, each within the budget of that location.
//
// A taken chunk belongs to its references (ChunkRef). When the last one goes, the chunk returns to
// the store by itself. An exported chunk does not return: other processes may still write to it, so
// it is released instead. It counts while this process refers to it or maps it. This process cannot
// know more, because the driver does not report when an importer is done.
//
// Thread-safe.
class ChunkStore {
 public:
  explicit ChunkStore(const Driver& driver);
  // Releases free chunks. Chunks still in use keep the parts of the store alive that they need, and
  // are released with their last reference.
  ~ChunkStore();
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  // Lets the store hold memory at `where`, within the budget. When more than `most_free` bytes are
  // free there, it releases the chunks that have been free for longest. Call before the first chunk
  // is taken.
  Result<void> serve(Location where, std::shared_ptr<Budget> budget, Size most_free = unlimited);

  // Lets the store hold memory elsewhere, for use when the device has no room. Places added first
  // are used first. Can be called at any time.
  Result<void> serve_spilled(Location where, std::shared_ptr<Budget> budget);
  bool spills() const;

  // A chunk from elsewhere: a free one of that size, else a new one within the budget of its place.
  // OutOfMemory if no place has any.
  Result<ChunkRef> take_spilled(Size size, Export exportable = Export::No);
  // The bytes held elsewhere, over all places, and how many more are available there.
  ChunkCounters spilled() const;
  // Whether any chunk ever came from elsewhere. Takes no lock.
  bool has_spilled() const;
  // To be held while a request has taken chunks that it may put back.
  MemoryInHand& in_hand();
  Size spill_room() const;
  // Creates one more free chunk on the host, ready for the next request, because pinning takes
  // long. If that fails, nothing changes.
  Result<void> make_spilled_ready(Size size);
  // Releases up to `wanted` bytes of free memory elsewhere, including what clients have mapped but
  // do not use. Returns how many bytes it released.
  Size reclaim_spilled(Size wanted);

  // A free chunk of that kind, else a new one within the budget. If the budget is exhausted, or the
  // driver has no memory, the store releases free chunks of other sizes, then asks the reclaim
  // clients in their order (except `asker`, which is making this request), and then tries once
  // more.
  Result<ChunkRef> take(const ChunkKind& kind, const ReclaimClient* asker = nullptr);
  // As take(), but if the location cannot make exportable memory, the chunk is not exportable.
  Result<ChunkRef> take_even_if_unexportable(const ChunkKind& kind);
  // All `count` or none.
  Result<std::vector<ChunkRef>> take_many(const ChunkKind& kind, std::size_t count,
                                          const ReclaimClient* asker = nullptr);
  // A free chunk, or an empty reference. Never calls the driver.
  ChunkRef take_free(const ChunkKind& kind);

  // The same as destroying the reference: the chunk is free once no other reference exists.
  void give(ChunkRef chunk) { chunk = {}; }

  // Releases free chunks, those that have been free for longest first, until at most `down_to`
  // bytes are free at that location. Returns how many bytes it released.
  Size trim(Location where, Size down_to);
  // Releases up to `wanted` bytes: free chunks first, then what the clients release.
  Size reclaim(Location where, Size wanted, const ReclaimClient* asker = nullptr);

  [[nodiscard]] ReclaimRegistration add_client(ReclaimClient& client, int order);

  // The bytes that the program requested of all RequestedBytes over this store.
  Size requested() const { return requested_.load(std::memory_order_relaxed); }

  ChunkCounters counters(Location where) const;
  // nullptr if the store does not serve the location.
  Budget* budget(Location where) const;

  InvariantViolation violation() const;
  void check() const { must_hold(violation()); }

 private:
  friend class RequestedBytes;
  class Impl;
  std::shared_ptr<Impl> impl_;  // outlives the store while chunks are in use
  std::atomic<Size> requested_{0};
};

// What the program has requested of a pool or buffer that maps a store's chunks itself: how much of
// the store's memory in use holds something. The store must outlive it.
class RequestedBytes {
 public:
  explicit RequestedBytes(ChunkStore& store) : store_(&store) {}
  RequestedBytes(RequestedBytes&& other) noexcept
      : store_(other.store_), bytes_(std::exchange(other.bytes_, 0)) {}
  RequestedBytes& operator=(RequestedBytes&&) = delete;
  ~RequestedBytes() { set(0); }

  // Not thread-safe.
  void set(Size now) {
    store_->requested_.fetch_add(now - std::exchange(bytes_, now), std::memory_order_relaxed);
  }

 private:
  ChunkStore* const store_;
  Size bytes_ = 0;
};

}  // namespace cuvmm
