// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "alloc/arena/allocation_span.hpp"
#include "alloc/arena/arena_settings.hpp"
#include "alloc/arena/layout.hpp"
#include "alloc/arena/rearrangement.hpp"
#include "alloc/arena/spread.hpp"
#include "alloc/arena/stream_cache.hpp"
#include "alloc/arena/stripes.hpp"
#include "alloc/arena/torn.hpp"
#include "alloc/traced_arena.hpp"
#include "stream/stream_order.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm::arena {

class Sharing;

// The use and the backing of an arena's addresses, and the operations of which Arena, BlockBuilder
// and ArenaEviction are composed. Call with the lock held, unless noted.
struct ArenaState {
  ArenaState(ChunkStore& store, StreamOrder& order, const ArenaSettings& settings,
             Reservation addresses);
  ArenaState(const ArenaState&) = delete;
  ArenaState& operator=(const ArenaState&) = delete;

  // Each stream cache has a lock of its own, which is taken before the arena's.
  StreamCache& cache_of(StreamId stream) { return caches[stream % cache_count]; }
  void flush(StreamCache& cache);  // under its lock and ours
  // Call without a lock held. flush_usable() flushes only the caches that may hold memory that the
  // stream can use. The other caches keep their blocks for the streams that freed them.
  void flush_all();
  void flush_usable(StreamId stream);
  bool try_flush_all();  // waits for no lock; returns false if the arena's was taken
  void forget_cached();
  Size cached_bytes() const;

  // The size of the block for a request of `asked` bytes.
  Size size_for(Size asked) const;
  // A block from the free ranges, or nullptr. take_own() uses ranges that belong to the stream or
  // to anyone; take_ordered() uses ranges whose pending work is known to precede the stream's next
  // work.
  Block* take_own(Size size, StreamId stream, Patience patience, ResidencyFilter reach);
  Block* take_ordered(Size size, StreamId stream, Patience patience, ResidencyFilter reach);
  void give_back(Block& block, const FreeTicket& ticket);
  // Lays the chunks, which are not mapped yet, in stripes at the front of the hole, and takes a
  // block of one of the stripes. The hole has room for it.
  Result<Block*> lay_in_stripes(const Stripes& stripes, Range& hole,
                                const std::vector<ChunkRef>& chunks, Size size, StreamId stream);
  // Whether blocks of this size are laid in stripes now.
  bool is_striped(Size size) const {
    return settings.spreads && settings.grow == Grow::Loose && spread.count(size) > 1 &&
           Stripes::are_for(size, layout.unit());
  }
  // Finds out how far the device has come with pending work. Memory that a pool excludes from
  // opportunistic reuse may still be given to others.
  enum class Taker : std::uint8_t { ThisArena, Others };
  void look_at_pending(Taker taker = Taker::ThisArena);
  // Looks at pending work once twice as many streams own free ranges as after the last time. If a
  // program makes a stream for each request, its memory would otherwise be scattered over thousands
  // of owners, and each search visits all of them.
  void gather_from_many_streams();

  Rearrangement rearrangement() { return {layout, mapping, access, settings.device}; }
  Result<void> commit(Rearrangement& change);
  // Gives whole free chunks to the store, least recently used first. `choose(chunk, bytes chosen so
  // far)` selects them. Returns how many bytes it gave.
  enum class Choice : std::uint8_t { Keep, Released, Stop };
  Size release_chunks(const std::function<Choice(const Chunk&, Size)>& choose);
  // Releases at most `count` free chunks of the smallest size. Returns their bytes.
  Size release_smallest(Size count);
  // Releases free spilled memory once the device has room for as much. Before that it would soon be
  // needed again, and unmapping it is expensive.
  void release_spilled();
  void retry_refused();
  // Call before memory goes to others: finds all that is free by now.
  void find_free_for_others();

  Sharing sharing();
  // Estimates how many of `granules` sharing chunks could gain, perhaps too high.
  Size could_gain(Size granules);
  // Returns how many chunks have become wholly free.
  Size end_unused_sharing();
  Size end_unused_sharing_after_frees();  // since the last look; quick if there were none

  Size in_granules(Size bytes) const { return round_up(bytes, layout.unit()) / layout.unit(); }
  std::vector<Stretch> far_within(const Stretch& where) const;
  // Whole free chunks that no work uses.
  Size movable_bytes(ResidencyFilter reach) const;
  // Bytes of chunks: a chunk counts once, wherever it is mapped.
  Size physical_bytes() const {
    return mapping.mapped_bytes() - std::min(mapping.mapped_bytes(), layout.shadow_bytes());
  }
  Size far_physical_bytes() const;
  // Without the lock.
  ChunkPolicy::Supply supply() const;

  // Publishes the amounts that are read without the lock.
  void note_mapped();
  // Records in the trace, if one is taken, what the arena holds.
  void tell() const;
  // Forgets all blocks and unmaps everything. No work may use any of it.
  void clear();
  // Without a lock held. Walks everything; no other thread may use the arena meanwhile.
  InvariantViolation violation() const;

  static constexpr std::size_t cache_count = 64;
  std::array<StreamCache, cache_count> caches;

  ChunkStore& store;
  StreamOrder& order;
  const ArenaSettings settings;
  const Location here;
  const TracedArena traced;
  Reservation reservation;  // the lock guards only its end
  const StreamCache::Bounds cache_bounds;

  mutable Lock lock{LockOrder::Arena};  // guards what follows
  AccessSet access;
  Mapping mapping;
  Layout layout;
  Spread spread;
  StripeRows stripe_rows;
  Size blocks_a_stripe = 1;  // in the last row

  static constexpr std::size_t few_owners = 128;
  std::size_t expected_owners = few_owners;  // of free ranges; with more, it is time to gather

  std::vector<Torn> torn;
  std::uint64_t given_back = 0;  // blocks, so far
  // The value of given_back at the last search for shared chunks without use.
  static constexpr std::uint64_t no_look = ~std::uint64_t{0};
  std::uint64_t looked_after = no_look;
  bool is_away = false;  // during an eviction: some of the mapped tiles have no chunks
  bool has_ended = false;
  std::uint64_t moved_chunks = 0;
  Size moved_bytes = 0;
  // The last estimate by could_gain() that fell short. It holds until the free ranges or the access
  // change, since nothing else makes room for live memory.
  struct Shortfall {
    Size wanted;  // in granules
    Size could_gain;
    std::uint64_t free_changes;
  };
  std::optional<Shortfall> shortfall;
  std::uint64_t estimates = 0;
  std::uint64_t compacted_granules = 0;
  Size compacted_bytes = 0;

  std::atomic<std::uint64_t> created{0};  // chunks that the store had to create
  // Copies of amounts in `mapping` and `layout`, readable without the lock.
  std::atomic<Size> mapped{0};
  std::atomic<Size> far_mapped{0};
  std::atomic<Size> far_free{0};

 private:
  Range* best_fit(Size size, StreamId stream, Patience patience, ResidencyFilter reach,
                  Size below) const;
  Block* carve(Range* range, Size size, StreamId stream);
  void give_back_tile(Block& block, const FreeTicket& ticket);
  Mapping empty_mapping() const;
  InvariantViolation sharing_violation() const;
};

}  // namespace cuvmm::arena
