// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "alloc/arena/allocation_span.hpp"
#include "alloc/arena/build.hpp"
#include "alloc/arena/chunk_policy.hpp"
#include "alloc/arena/compactor.hpp"
#include "alloc/arena/layout.hpp"
#include "alloc/arena/rearrangement.hpp"
#include "alloc/arena/spread.hpp"
#include "alloc/arena/stream_cache.hpp"
#include "alloc/arena/torn.hpp"
#include "alloc/eviction_set.hpp"
#include "alloc/region_use.hpp"
#include "alloc/traced_arena.hpp"
#include "base/clock.hpp"
#include "base/options.hpp"
#include "stream/stream_order.hpp"
#include "vmm/chunk_store.hpp"
#include "vmm/copy_bytes.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm {

namespace arena {
class Sharing;
}

struct ArenaSettings {
  const char* what = "an arena";  // for traces; a literal
  int device = 0;
  Size granule = usual_granule;  // of the device
  Size reserve = 0;              // bytes of addresses
  AccessSet access = AccessSet::none();
  Grow grow = Grow::Loose;
  Size device_memory = unlimited;
  Size smallest_chunk = 0;  // a multiple of the granule; 0: the granule
  ChunkPolicy chunks;
  Export exportable = Export::No;
  Duration wait{1'000'000};        // the longest wait for pending frees
  int reclaim_order = 0;           // among the clients of the store
  Compactor* compactor = nullptr;  // nullptr: live memory never moves
  bool spreads = false;            // blocks of equal size, see arena::Spread
};

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
class Arena final : public EvictionSource, private ReclaimClient {
 public:
  static Result<std::unique_ptr<Arena>> create(const Driver& driver, ChunkStore& store,
                                               StreamOrder& order, const ArenaSettings& settings);
  // Releases the same as end(), under the same condition.
  ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The block can be used by work submitted to `stream` from now on; no_stream: by any work at
  // once.
  Result<Block*> allocate(Size asked, StreamId stream);
  void free(Block& block, const FreeTicket& ticket);

  // Sets the access of all devices to present and future blocks. All or nothing.
  Result<void> set_access(const AccessSet& access);
  AccessSet access() const;

  // The chunks behind a block that the program holds, in order.
  std::vector<MappedChunk> chunks_behind(const Block& block) const;

  // Gives free chunks to the store, least recently used first, while at least `keep` bytes stay
  // mapped. Returns how many bytes it gave.
  Size trim(Size keep);
  // The same, until `wanted` bytes are given or none are left.
  Size release(Size wanted);

  // How many of so many bytes share() could yield. Changes nothing. May be too many.
  Size could_share(Size wanted);
  // Moves live memory until `wanted` bytes of chunks have gone to the store, or no more can. The
  // caller guarantees that no work uses the memory meanwhile. Returns how many.
  Result<Size> share(Size wanted, const CopyBy& copy);
  // The block does not move from now on.
  void pin(Block& block, std::uint8_t why) {
    const Holding holding{lock_};
    block.add_pin(why);
  }

  // EvictionSource
  void list_held(std::vector<HeldChunk>& held) const override;
  void begin_eviction(EvictionSet& evicted) override;
  Result<void> take_out(EvictedChunk& one) override;
  Result<void> put_back(std::span<EvictedChunk> some) override;
  // Nothing to do: the arena's mapping has no chunks there, which is a valid state.
  void count_as_restored(std::span<EvictedChunk> /*some*/) override {}
  void end_eviction() override;

  // Ends the arena: releases all blocks, everything that is mapped, and the addresses. The caller
  // guarantees that no work uses any of it.
  void end();
  // The same, if nothing is held and no work can use any of it. Returns whether the arena has
  // ended.
  bool end_if_empty();

  bool contains(CUdeviceptr address) const { return reservation_.contains(address, 1); }
  ArenaCounters counters() const;
  RegionUse use() const;
  // Records in the trace what the arena holds. For a process that is exiting: does nothing if
  // another thread has the lock.
  void tell_trace() const;
  Size mapped_bytes() const { return mapped_.load(std::memory_order_relaxed); }
  Size spilled_free() const { return far_free_.load(std::memory_order_relaxed); }

  // Walks everything. No other thread may use the arena meanwhile.
  InvariantViolation violation() const;
  void check() const { must_hold(violation()); }

 private:
  InvariantViolation sharing_violation() const;  // under the lock
  static constexpr std::size_t cache_count = 64;

  Arena(ChunkStore& store, StreamOrder& order, const ArenaSettings& settings,
        Reservation reservation);

  arena::StreamCache& cache_of(StreamId stream) { return caches_[stream % cache_count]; }
  void flush(arena::StreamCache& cache);  // under its lock and ours
  void flush_all();
  // Flushes the caches that may hold memory that the stream can use. The others keep their blocks
  // for the streams that freed them.
  void flush_usable(StreamId stream);
  Size cached_bytes() const;

  // Under the lock: a block from the free ranges, or nullptr.
  Block* take_own(Size size, StreamId stream, arena::Patience patience,
                  arena::ResidencyFilter reach);
  Block* take_ordered(Size size, StreamId stream, arena::Patience patience,
                      arena::ResidencyFilter reach);
  Block* carve(arena::Range* range, Size size, StreamId stream);
  void give_back(Block& block, const FreeTicket& ticket);
  void give_back_tile(Block& block, const FreeTicket& ticket);
  // Under the lock: finds out how far the device has come with pending work. Memory that a pool
  // excludes from opportunistic reuse may still be given to others.
  enum class Taker : std::uint8_t { ThisArena, Others };
  void look_at_pending(Taker taker = Taker::ThisArena);

  Result<Block*> search_further(Size size, StreamId stream);

  Result<Block*> build(arena::Build& build);
  // Under the lock: nullptr if chunks are missing.
  Result<Block*> try_to_build(arena::Build& build);
  Result<Block*> build_at(const arena::AllocationSpan& span, arena::Build& build);
  // Where the block goes, in a place for several.
  Stretch place_in(const Stretch& where, const arena::Build& build);
  bool holds_pending_of_others(const arena::AllocationSpan& span, StreamId stream) const;
  void move_into(const arena::AllocationSpan& span, arena::ResidencyFilter reach,
                 arena::GapFill& fill, arena::Rearrangement& change);
  Result<void> commit(arena::Rearrangement& change);
  bool may_move(const arena::Build& build) const;
  Size movable_bytes(arena::ResidencyFilter reach) const;
  arena::ResidencyFilter further(const arena::Build& build) const;
  bool is_hopeless(Size size) const;
  bool must_go_far(const arena::Build& build) const;
  bool is_waiting_futile(const arena::Build& build) const;
  // Under the lock. `chunks`: bytes of chunks available besides the arena's own.
  Error out_of_memory(Size asked, Error refusal, Size chunks) const;

  // Not under the lock. take_chunks() takes what is lacking, or as much as there is, into the
  // build's hand.
  Result<void> take_chunks(arena::Build& build);
  // A chunk of `size`. If the store would have to release a free one of another size for it, takes
  // that one instead, of `most` bytes at most.
  Result<ChunkRef> take_chunk(Size size, Size most);
  ChunkPolicy::Supply supply() const;
  // Returns whether the build has more in hand now, or more chunks may move.
  Result<bool> take_under_pressure(arena::Build& build);
  Result<void> take_spilled(arena::Build& build);
  std::vector<FreeTicket> frees_to_follow(const arena::Build& build) const;  // under the lock
  bool follow(const std::vector<FreeTicket>& frees, StreamId stream);
  bool wait_for_pending(const arena::Build& build);

  Size reclaim(Size wanted, Location where) override;
  // Under the lock: gives whole free chunks to the store, least recently used first.
  // `choose(chunk, bytes chosen so far)` selects them.
  enum class Choice : std::uint8_t { Keep, Released, Stop };
  template <class Choose>
  Size release_chunks(Choose choose);
  void release_wanted(const std::function<bool(const Chunk&)>& wanted);
  Size release_smallest(Size count);
  void release_spilled();
  void mend();  // repairs what the driver has refused, if it allows it by now
  // Under the lock.
  arena::Sharing sharing();
  Size end_unused_sharing();
  Size end_unused_sharing_after_frees();  // since the last look; quick if there were none
  Size in_granules(Size bytes) const;
  // Not under the lock.
  bool compact_for(arena::Build& build);
  Size far_physical_bytes() const;
  // Bytes of chunks: a chunk counts once, wherever it is mapped.
  Size physical_bytes() const {
    return mapping_.mapped_bytes() - std::min(mapping_.mapped_bytes(), layout_->shadow_bytes());
  }
  arena::Rearrangement rearrangement() { return {*layout_, mapping_, access_, settings_.device}; }
  void follow_chunks();  // arena_eviction.cpp
  std::vector<Size> offsets_of(const EvictedChunk& one) const;
  std::vector<Stretch> far_within(const Stretch& where) const;
  void end_addresses();
  Mapping empty_mapping() const;
  void note_mapped();
  // Under the lock. Does nothing unless a trace is taken.
  void tell() const;

  ChunkStore& store_;
  StreamOrder& order_;
  const ArenaSettings settings_;
  const Location here_;
  const TracedArena traced_;
  Reservation reservation_;  // the lock guards only its end
  const arena::StreamCache::Bounds cache_bounds_;

  std::array<arena::StreamCache, cache_count> caches_;  // each has its lock

  mutable Lock lock_{LockOrder::Arena};  // guards what follows
  AccessSet access_;
  Mapping mapping_;
  std::unique_ptr<arena::Layout> layout_;
  arena::Spread spread_;
  std::vector<arena::Torn> torn_;
  std::uint64_t given_back_ = 0;  // blocks, so far
  // So many blocks had been given back at the last look for shared chunks without use.
  static constexpr std::uint64_t no_look = ~std::uint64_t{0};
  std::uint64_t looked_after_ = no_look;
  // During an eviction: where else the chunk that was mapped at an offset was mapped.
  std::unordered_map<Size, std::vector<Size>> also_at_;
  bool is_away_ = false;  // during an eviction: some of the mapped tiles have no chunks
  std::uint64_t moved_chunks_ = 0;
  Size moved_bytes_ = 0;
  std::uint64_t compacted_granules_ = 0;
  Size compacted_bytes_ = 0;
  bool has_ended_ = false;
  std::uint64_t waits_ = 0;
  arena::BuildTurns turns_;

  std::atomic<std::uint64_t> created_{0};
  std::atomic<std::uint64_t> follows_{0};
  // Copies of what mapping and layout say, readable without the lock.
  std::atomic<Size> mapped_{0};
  std::atomic<Size> far_mapped_{0};
  std::atomic<Size> far_free_{0};

  ReclaimRegistration registration_;  // ends first
};

}  // namespace cuvmm
