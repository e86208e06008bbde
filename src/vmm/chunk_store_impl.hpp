// SPDX-License-Identifier: Apache-2.0
// The implementation of ChunkStore.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/lock.hpp"
#include "trace/record.hpp"
#include "vmm/chunk_store.hpp"

namespace cuvmm {

// The chunks of one location.
struct LocalChunks {
  enum class For : std::uint8_t { TheDevice, Spilling };

  Location location;
  For purpose;
  std::shared_ptr<Budget> budget;
  Size granule;
  Size most_free;

  FreeChunks free;
  Size in_use = 0;
  Size exported = 0;
  Size unreleased = 0;
};

// Lives until the store is closed and its last chunk is gone, so that chunks always have a home to
// return to.
class ChunkStore::Impl final : private ChunkHome {
 public:
  explicit Impl(const Driver& driver) : driver_(driver) {}

  Result<void> add(Location where, std::shared_ptr<Budget> budget, LocalChunks::For purpose,
                   Size most_free);
  // Releases the free chunks. Chunks in use keep the impl alive.
  static void close(const std::shared_ptr<Impl>& impl);

  Result<ChunkRef> take(const ChunkKind& kind, const ReclaimClient* asker);
  Result<ChunkRef> take_even_if_unexportable(const ChunkKind& kind);
  ChunkRef take_free(const ChunkKind& kind);
  std::vector<ChunkRef> take_free(const ChunkKind& kind, std::size_t most);
  // A new chunk. `still_wanted`: bytes that the caller will request in total, including this one.
  Result<ChunkRef> make(const ChunkKind& kind, Size still_wanted, const ReclaimClient* asker);

  // chunk_store_spilled.cpp
  bool spills() const { return spills_.load(std::memory_order_acquire); }
  std::vector<Location> spill_places() const;
  Result<ChunkRef> take_spilled(Size size, Export exportable);
  Result<void> make_spilled_ready(Size size);
  ChunkCounters spilled() const;
  bool has_spilled() const { return has_spilled_.load(std::memory_order_relaxed); }
  MemoryInHand& in_hand() { return in_hand_; }
  Size spill_room() const;

  Size trim(Location where, Size down_to);
  Size release_free(Location where, Size wanted);
  ReclaimClients& clients() { return clients_; }

  ChunkCounters counters(Location where) const;
  Budget* budget(Location where) const;
  InvariantViolation violation() const;

 private:
  void come_home(ChunkRecord* record) override;
  void was_exported(const ChunkRecord& record) override;

  LocalChunks* find_local(Location where) const;
  LocalChunks* local_at(Location where) const;  // under the lock
  Result<ChunkRef> try_to_make(const ChunkKind& kind, LocalChunks& local);
  // create() makes a chunk within the budget. end() destroys a chunk and returns its bytes to the
  // budget.
  Result<StoredChunk*> create(const ChunkKind& kind, LocalChunks& local);
  static void end(StoredChunk* chunk);
  // Releases free chunks of the local while `more` returns true. Returns how many bytes.
  template <class More>
  Size release_while(LocalChunks& local, More more);
  static void record_trim(Location where, Size released, Size kept, std::uint32_t chunks);
  // Not under the lock, because the driver call is slow.
  bool release(StoredChunk* chunk);
  void retry_unreleased();
  ChunkRef in_use(StoredChunk* chunk);
  static ChunkCounters counters_of(const LocalChunks& local);
  void record_spill(TraceEvent event, const Chunk& chunk) const;

  const Driver& driver_;
  ReclaimClients clients_;

  mutable Lock lock_{LockOrder::ChunkStore};          // guards what follows
  std::vector<std::unique_ptr<LocalChunks>> locals_;  // few, one per location; never removed
  std::vector<StoredChunk*> unreleased_;
  std::atomic<bool> spills_{false};  // readable without the lock
  std::atomic<bool> has_spilled_{false};
  MemoryInHand in_hand_;
  std::size_t chunk_count_ = 0;  // in use, free and unreleased
  bool closed_ = false;
  std::shared_ptr<Impl> self_;  // set when closed, until the last chunk is gone
};

}  // namespace cuvmm
