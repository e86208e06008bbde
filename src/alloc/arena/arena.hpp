// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "alloc/arena/allocation_span.hpp"
#include "alloc/arena/build.hpp"
#include "alloc/arena/chunk_policy.hpp"
#include "alloc/arena/layout.hpp"
#include "alloc/arena/rearrangement.hpp"
#include "alloc/arena/stream_cache.hpp"
#include "alloc/eviction_set.hpp"
#include "alloc/region_use.hpp"
#include "alloc/traced_arena.hpp"
#include "base/clock.hpp"
#include "base/options.hpp"
#include "stream/stream_order.hpp"
#include "vmm/chunk_store.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm {

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
  Duration wait{1'000'000};  // the longest for pending frees
  int reclaim_order = 0;     // among the clients of the store
};

struct ArenaCounters {
  Size live = 0;    // blocks that the program holds
  Size cached = 0;  // blocks that streams keep for themselves
  Size free = 0;    // the rest of what is mapped
  Size mapped = 0;
  Size spilled = 0;       // of what is mapped
  Size spilled_free = 0;  // of what is free
  Size reserved = 0;
  Size largest_free = 0;
  std::uint64_t blocks = 0;   // live and cached
  std::uint64_t created = 0;  // chunks that the store had not got
  std::uint64_t mapped_chunks = 0;
  std::uint64_t moved_chunks = 0;  // so far
  Size moved = 0;
  std::uint64_t waits = 0;    // of threads, for pending frees
  std::uint64_t follows = 0;  // of streams, for each other's
};

// A reservation that blocks are cut from, best fit, over mapped memory. Where none of the free
// ranges is large enough it extends one that ends at addresses without memory, by new chunks, or
// by free ones that it moves there from where they are of no use. Nothing live moves.
//
// Free on its own stream a block costs no driver call, and the stream's next allocation of that
// size has it again. Others' frees are waited for only when nothing else is left.
//
// Everything may be called from any thread. The store, the order and the driver outlive the arena.
class Arena final : public EvictionSource, private ReclaimClient {
 public:
  static Result<std::unique_ptr<Arena>> create(const Driver& driver, ChunkStore& store,
                                               StreamOrder& order, const ArenaSettings& settings);
  // As end().
  ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // For work that `stream` is given from now on; no_stream: for anything at once.
  Result<Block*> allocate(Size asked, StreamId stream);
  void free(Block& block, const FreeTicket& ticket);

  // Who may use the blocks, those of later too. All or nothing.
  Result<void> set_access(const AccessSet& access);
  AccessSet access() const;

  // The chunks that a block of a program's lies in, in order.
  std::vector<MappedChunk> chunks_behind(const Block& block) const;

  // Gives free chunks to the store, those that were not used for longest first, as long as `keep`
  // bytes stay mapped. Returns how much went.
  Size trim(Size keep);
  // The same for `wanted` bytes of them, where there are so many.
  Size release(Size wanted);

  // EvictionSource
  void list_held(std::vector<HeldChunk>& held) const override;
  void begin_eviction(EvictionSet& evicted) override;
  Result<void> take_out(EvictedChunk& one) override;
  Result<void> put_back(std::span<EvictedChunk> some) override;
  // Its books have had nothing there, and go on so.
  void count_as_restored(std::span<EvictedChunk> /*some*/) override {}
  void end_eviction() override;

  // For good: all blocks are gone, everything that was mapped, and the addresses. The caller
  // guarantees that no work uses any of it.
  void end();
  // The same where nothing is held and no work can use any of it. Whether it has ended.
  bool end_if_empty();

  bool contains(CUdeviceptr address) const { return reservation_.contains(address, 1); }
  ArenaCounters counters() const;
  RegionUse use() const;
  // What it holds, to the trace. For a process that ends: nothing where somebody is at work.
  void tell_trace() const;
  Size mapped_bytes() const { return mapped_.load(std::memory_order_relaxed); }
  Size spilled_free() const { return far_free_.load(std::memory_order_relaxed); }

  // Walks everything. Nobody else may work on the arena meanwhile.
  InvariantViolation violation() const;
  void check() const { must_hold(violation()); }

 private:
  static constexpr std::size_t cache_count = 64;

  Arena(ChunkStore& store, StreamOrder& order, const ArenaSettings& settings,
        Reservation reservation);

  arena::StreamCache& cache_of(StreamId stream) { return caches_[stream % cache_count]; }
  void flush(arena::StreamCache& cache);  // under its lock and ours
  void flush_all();
  // The caches that may hold what the stream can use. The others stay, so that their streams find
  // there what they freed.
  void flush_usable(StreamId stream);
  Size cached_bytes() const;

  // Under the lock: a block of what is free, or nullptr.
  Block* take_own(Size size, StreamId stream, arena::Patience patience,
                  arena::ResidencyFilter reach);
  Block* take_ordered(Size size, StreamId stream, arena::Patience patience,
                      arena::ResidencyFilter reach);
  Block* carve(arena::Range* range, Size size, StreamId stream);
  void give_back(Block& block, const FreeTicket& ticket);
  // Under the lock: how far the device has come with what is pending. Memory that a pool
  // excludes from opportunistic reuse may still be given to others.
  enum class Taker : std::uint8_t { ThisArena, Others };
  void look_at_pending(Taker taker = Taker::ThisArena);

  Result<Block*> search_further(Size size, StreamId stream);

  Result<Block*> build(arena::Build& build);
  // Under the lock: nullptr where chunks are missing.
  Result<Block*> try_to_build(arena::Build& build);
  Result<Block*> build_at(const arena::AllocationSpan& span, arena::Build& build);
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
  // Under the lock. With so many bytes of chunks beside what is here.
  Error out_of_memory(Size asked, Error refusal, Size chunks) const;

  // Not under the lock. take_chunks(): into the hand what is lacking, or as much as there is.
  Result<void> take_chunks(arena::Build& build);
  // Of `size`; where that means to release another, one of those, of `most` at the most.
  Result<ChunkRef> take_chunk(Size size, Size most);
  ChunkPolicy::Supply supply() const;
  // Whether there is more in hand now.
  Result<bool> take_under_pressure(arena::Build& build);
  Result<void> take_spilled(arena::Build& build);
  std::vector<FreeTicket> frees_to_follow(const arena::Build& build) const;  // under the lock
  bool follow(const std::vector<FreeTicket>& frees, StreamId stream);
  bool wait_for_pending(const arena::Build& build);

  Size reclaim(Size wanted, Location where) override;
  // Under the lock: whole free chunks go to the store, those that were not used for longest first.
  // `choose(chunk, bytes gone so far)` says which.
  enum class Choice : std::uint8_t { Keep, Released, Stop };
  template <class Choose>
  Size release_chunks(Choose choose);
  void release_wanted(const std::function<bool(const Chunk&)>& wanted);
  void release_spilled();
  void mend();  // what is broken, where the driver takes it out by now
  arena::Rearrangement rearrangement() { return {*layout_, mapping_, access_, settings_.device}; }
  void follow_chunks();  // arena_eviction.cpp
  std::vector<Stretch> far_within(const Stretch& where) const;
  void end_addresses();
  Mapping empty_mapping() const;
  void note_mapped();
  // Under the lock, where a trace is taken.
  void tell() const;

  ChunkStore& store_;
  StreamOrder& order_;
  const ArenaSettings settings_;
  const Location here_;
  const TracedArena traced_;
  Reservation reservation_;  // the lock is for its end
  const arena::StreamCache::Bounds cache_bounds_;

  std::array<arena::StreamCache, cache_count> caches_;  // each has its lock

  mutable Lock lock_{LockOrder::Arena};  // guards what follows
  AccessSet access_;
  Mapping mapping_;
  std::unique_ptr<arena::Layout> layout_;
  bool is_away_ = false;  // some of what layout_ says is mapped is not
  std::uint64_t moved_chunks_ = 0;
  Size moved_bytes_ = 0;
  bool has_ended_ = false;
  std::uint64_t waits_ = 0;
  arena::BuildTurns turns_;

  std::atomic<std::uint64_t> created_{0};
  std::atomic<std::uint64_t> follows_{0};
  // As mapping and layout say, readable without the lock.
  std::atomic<Size> mapped_{0};
  std::atomic<Size> far_mapped_{0};
  std::atomic<Size> far_free_{0};

  ReclaimRegistration registration_;  // ends first
};

}  // namespace cuvmm
