// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "alloc/arena/arena_eviction.hpp"
#include "alloc/arena/arena_settings.hpp"
#include "alloc/arena/arena_state.hpp"
#include "alloc/arena/block_builder.hpp"
#include "alloc/region_use.hpp"
#include "vmm/copy_stream.hpp"

namespace cuvmm {

struct ArenaCounters {
  Size live = 0;    // blocks that the program holds
  Size cached = 0;  // blocks in the streams' caches
  Size free = 0;    // the remaining mapped bytes
  Size mapped = 0;
  Size spilled = 0;       // of the mapped bytes
  Size spilled_free = 0;  // of the free bytes
  Size reserved = 0;
  Size largest_free = 0;
  std::uint64_t blocks = 0;   // live and cached
  std::uint64_t created = 0;  // chunks that the store had to create
  std::uint64_t mapped_chunks = 0;
  std::uint64_t moved_chunks = 0;  // so far
  Size moved = 0;
  std::uint64_t estimates = 0;           // of what compaction could gain, so far
  std::uint64_t compacted_granules = 0;  // with live memory, given another chunk, so far
  Size compacted = 0;
  std::uint64_t waits = 0;    // of threads, for pending frees
  std::uint64_t follows = 0;  // waits of streams, for frees of other streams
};

// A reservation from which blocks are cut, best fit, where memory is mapped. If no free range is
// large enough, the arena extends one that ends at addresses without memory: by new chunks, or by
// free chunks that it moves there from places where they are of no use. Live memory never moves.
//
// Freeing a block on its own stream takes no driver call, and the stream's next allocation of that
// size reuses it. The arena waits for other streams' frees only as a last resort.
//
// Thread-safe. The store, the order and the driver must outlive the arena.
class Arena final : private ReclaimClient {
 public:
  static Result<std::unique_ptr<Arena>> create(const Driver& driver, ChunkStore& store,
                                               StreamOrder& order, const ArenaSettings& settings);
  // Releases the same as end(), under the same condition.
  ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The block can be used by work submitted to `stream` from now on; no_stream: by any work at
  // once.
  Result<Block*> allocate(Size asked, StreamId stream, MemoryPressure& pressure);
  Result<Block*> allocate(Size asked, StreamId stream) {
    MemoryPressure alone{state_.settings.wait};
    return allocate(asked, stream, alone);
  }
  void free(Block& block, const FreeTicket& ticket);

  // Sets the access of all devices to present and future blocks. All or nothing.
  Result<void> set_access(const AccessSet& access);
  AccessSet access() const;

  // The chunks behind a block that the program holds, in order.
  ChunksBehind chunks_behind(const Block& block) const;

  // Gives free chunks to the store, least recently used first, while at least `keep` bytes stay
  // mapped. Returns how many bytes it gave.
  Size trim(Size keep);
  // The same, until `wanted` bytes are given or none are left.
  Size release(Size wanted);

  // Estimates how many of `wanted` bytes share() could yield, perhaps too high. Moves nothing.
  Size could_share(Size wanted);
  // Moves live memory until `wanted` bytes of chunks have gone to the store, or no more can. The
  // caller guarantees that no work uses the memory meanwhile. Returns how many.
  Result<Size> share(Size wanted, const CopyBy& copy);
  // The block does not move from now on.
  void pin(Block& block, std::uint8_t why) {
    const Holding holding{state_.lock};
    block.add_pin(why);
  }

  EvictionSource& eviction() { return eviction_; }
  const EvictionSource& eviction() const { return eviction_; }

  // Ends the arena: releases all blocks, everything that is mapped, and the addresses. The caller
  // guarantees that no work uses any of it.
  void end();
  // The same, if nothing is held and no work can use any of it. Returns whether the arena has
  // ended.
  bool end_if_empty();

  bool contains(CUdeviceptr address) const { return state_.reservation.contains(address, 1); }
  ArenaCounters counters() const;
  RegionUse use() const;
  // Records in the trace what the arena holds. For a process that is exiting: does nothing if
  // another thread has the lock.
  void trace_holdings() const;
  Size mapped_bytes() const { return state_.mapped.load(std::memory_order_relaxed); }
  Size spilled_free() const { return state_.far_free.load(std::memory_order_relaxed); }

  // Walks everything. No other thread may use the arena meanwhile.
  InvariantViolation violation() const;
  void check() const { must_hold(violation()); }

 private:
  Arena(ChunkStore& store, StreamOrder& order, const ArenaSettings& settings,
        Reservation addresses);

  Result<Block*> search_further(Size size, StreamId stream, MemoryPressure& pressure);
  std::vector<ChunkRef> spare_chunks(bool may_create);
  void release_for_spares();
  Size reclaim(Size wanted, Location where) override;
  void end_addresses();  // under the lock

  arena::ArenaState state_;
  arena::BlockBuilder builder_{state_, *this};
  ArenaEviction eviction_{state_};

  ReclaimRegistration registration_;  // ends first
};

}  // namespace cuvmm
