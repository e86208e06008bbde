// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "base/lock.hpp"
#include "vmm/free_chunks.hpp"
#include "vmm/reclaim.hpp"

namespace cuvmm {

// What a store holds at one location. physical_in_use and physical_free together with what the
// driver would not release are what counts against the budget.
struct ChunkCounters {
  Size physical_in_use = 0;    // somebody refers to them; exported ones included
  Size physical_free = 0;      // kept for the next who asks
  Size physical_exported = 0;  // of those in use: another process may hold them
  Size physical_unreleased =
      0;  // no longer used, but the driver refused to release it; tried again
};

// A device's chunks: those that are free, and the right to have them. It may hold memory of other
// locations too, the host's or a neighbour's, each within the budget of that location.
//
// A taken chunk belongs to its references (ChunkRef); with the last one it
// comes home by itself. An exported chunk does not come home: other processes may still write to
// it, so it is released instead. It counts as long as this process refers to it or maps it, which
// is as far as this process can know: the driver does not tell when an importer is done.
//
// Everything may be called from any thread.
class ChunkStore {
 public:
  explicit ChunkStore(const Driver& driver);
  // Free chunks are released. Those still in use keep what they need of the store alive, and are
  // released with their last reference.
  ~ChunkStore();
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  // Lets the store hold memory at `where`, within the budget. Once more than `most_free` bytes are
  // free there, those that have been free for longest are released. Before the first chunk is
  // taken.
  Result<void> serve(Location where, std::shared_ptr<Budget> budget, Size most_free = unlimited);

  // Lets the store hold memory elsewhere, for what the device has no room for; places that were
  // named first are used first. At any time.
  Result<void> serve_spilled(Location where, std::shared_ptr<Budget> budget);
  bool spills() const;

  // A chunk from elsewhere: a free one of that size, else a new one within the budget of its place.
  // OutOfMemory where no place has any.
  Result<ChunkRef> take_spilled(Size size, Export exportable = Export::No);
  // What is elsewhere, of all places together, and what could still be had there.
  ChunkCounters spilled() const;
  Size spill_room() const;
  // One more free chunk on the host, ready for the next request: pinning takes long. Where none can
  // be had, nothing changes.
  Result<void> make_spilled_ready(Size size);
  // Releases `wanted` bytes of what is free elsewhere, also of what the clients have mapped and
  // nobody uses. Returns how much went.
  Size reclaim_spilled(Size wanted);

  // A free chunk of that kind, else a new one within the budget. Where that is exhausted, or the
  // driver has no memory, free chunks of other sizes are released, then the reclaim clients asked
  // in their order (but `asker`, who cannot be asked while he asks), and then it is tried once
  // more.
  Result<ChunkRef> take(const ChunkKind& kind, const ReclaimClient* asker = nullptr);
  // All `count` or none.
  Result<std::vector<ChunkRef>> take_many(const ChunkKind& kind, std::size_t count,
                                          const ReclaimClient* asker = nullptr);
  // A free one or nothing. Never calls the driver.
  ChunkRef take_free(const ChunkKind& kind);

  // The same as letting the reference end: the chunk is free once nobody else refers to it.
  void give(ChunkRef chunk) { chunk = {}; }

  // Releases free chunks, those that have been free for longest first, until no more than `down_to`
  // bytes are free at that location. Returns how much has been released.
  Size trim(Location where, Size down_to);
  // Releases `wanted` bytes if it can: free chunks first, then what the clients release.
  Size reclaim(Location where, Size wanted, const ReclaimClient* asker = nullptr);

  [[nodiscard]] ReclaimRegistration add_client(ReclaimClient& client, int order);

  ChunkCounters counters(Location where) const;
  // nullptr where the store does not serve the location.
  Budget* budget(Location where) const;

  InvariantViolation violation() const;
  void check() const { must_hold(violation()); }

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // outlives the store while chunks are in use
};

}  // namespace cuvmm
