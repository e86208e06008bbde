// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/arena.hpp"

#include <algorithm>
#include <utility>

#include "alloc/arena/sharing.hpp"

namespace cuvmm {

using arena::ArenaState;
using arena::ResidencyFilter;
using arena::Sharing;
using arena::StreamCache;

namespace {

// How many spare chunks one batch uses to break up larger chunks.
constexpr std::size_t most_spares = 256;

ArenaSettings complete(ArenaSettings settings) {
  if (settings.smallest_chunk == 0) settings.smallest_chunk = settings.granule;
  settings.reserve = round_up(settings.reserve, settings.smallest_chunk);
  if (settings.reserve_least == 0) settings.reserve_least = settings.reserve;
  return settings;
}

Result<Reservation> reserve_addresses(const Driver& driver, const ArenaSettings& settings) {
  const Size least = round_up(settings.reserve_least, settings.smallest_chunk);
  Size size = settings.reserve;
  for (;;) {
    auto reserved = Reservation::create(driver, size, settings.granule);
    if (reserved.ok() || size <= least) return reserved;
    size = std::max(least, round_up(size / 2, settings.smallest_chunk));
  }
}

}  // namespace

Result<std::unique_ptr<Arena>> Arena::create(const Driver& driver, ChunkStore& store,
                                             StreamOrder& order, const ArenaSettings& settings) {
  constexpr const char* doing = "make an arena";
  const ArenaSettings chosen = complete(settings);
  if (chosen.reserve == 0) return Error::invalid(doing, "without addresses");
  if (!is_multiple(chosen.smallest_chunk, chosen.granule)) {
    return Error::invalid(doing, "the chunk size is not a multiple of the granule",
                          chosen.smallest_chunk);
  }
  if (store.budget(Location::device(chosen.device)) == nullptr) {
    return Error::invalid(doing, "the store does not serve the device");
  }
  Reservation addresses = TRY(reserve_addresses(driver, chosen));
  std::unique_ptr<Arena> made{new Arena{store, order, chosen, std::move(addresses)}};
  made->registration_ = store.add_client(*made, chosen.reclaim_order);
  return made;
}

Arena::Arena(ChunkStore& store, StreamOrder& order, const ArenaSettings& settings,
             Reservation addresses)
    : state_(store, order, settings, std::move(addresses)) {}

Result<Block*> Arena::allocate(Size asked, StreamId stream, MemoryPressure& pressure) {
  const Size size = state_.size_for(asked);
  if (asked == 0) return Error::invalid("allocate", "no bytes");
  if (size == 0 || size > state_.reservation.size() || size > state_.settings.device_memory) {
    const Holding holding{state_.lock};
    return builder_.out_of_memory(asked, {.subject = "more than the device's memory"},
                                  state_.supply().room);
  }
  Holding holding{state_.lock, std::defer_lock};
  if (stream != no_stream) {
    StreamCache& cache = state_.cache_of(stream);
    const Holding cached = cache.lock();
    if (Block* const block = cache.take(size, stream)) return block;
    // Only free ranges in the layout can join, so flush what the stream keeps.
    holding.lock();
    if (!cache.is_empty()) state_.flush(cache);
  } else {
    holding.lock();
  }
  state_.gather_from_many_streams();
  if (Block* const block =
          state_.take_own(size, stream, arena::usual_patience, arena::ResidencyFilter::Near))
    return block;
  holding.unlock();
  return search_further(size, stream, pressure);
}

void Arena::free(Block& block, const FreeTicket& ticket) {
  // Far memory is for requests that find no room on the device, not for the next one of this size.
  if (ticket.is_for_anyone() || ticket.stream != block.stream ||
      block.residency == Residency::Far) {
    const Holding holding{state_.lock};
    return state_.give_back(block, ticket);
  }
  StreamCache& cache = state_.cache_of(ticket.stream);
  const Holding cached = cache.lock();
  if (cache.put(block, ticket.tick, state_.cache_bounds)) return;
  const Holding holding{state_.lock};
  state_.flush(cache);
  state_.give_back(block, ticket);
}

Result<void> Arena::set_access(const AccessSet& access) {
  const Holding holding{state_.lock};
  state_.retry_refused();
  MapPlan plan;
  Stretch run;
  const auto allow_run = [&] {
    if (run.size != 0) plan.allow(state_.mapping, run, access);
  };
  state_.mapping.for_each([&](const MappedChunk& mapped) {
    if (mapped.offset != run.end()) {
      allow_run();
      run = {mapped.offset, 0};
    }
    run.size += mapped.chunk->size();
  });
  allow_run();
  TRY(plan.commit());
  state_.access = access;
  state_.shortfall.reset();
  return {};
}

AccessSet Arena::access() const {
  const Holding holding{state_.lock};
  return state_.access;
}

void Arena::end() {
  state_.forget_cached();
  const Holding holding{state_.lock};
  state_.tell();
  state_.clear();
  end_addresses();
}

bool Arena::end_if_empty() {
  trim(0);
  const Holding holding{state_.lock};
  if (state_.mapping.mapped_bytes() != 0 || state_.layout.block_count() != 0) return false;
  end_addresses();
  return true;
}

void Arena::end_addresses() {
  state_.has_ended = true;
  state_.reservation.end();
}

void Arena::trace_holdings() const {
  const Holding holding{state_.lock, std::try_to_lock};
  if (holding.owns_lock()) state_.tell();
}

ChunksBehind Arena::chunks_behind(const Block& block) const {
  const Holding holding{state_.lock};
  const Size at = block.address() - state_.reservation.address();
  ChunksBehind behind{.offset = 0, .chunks = state_.mapping.chunks_in({at, block.granted()})};
  if (!behind.chunks.empty()) behind.offset = at - behind.chunks.front().offset;
  return behind;
}

RegionUse Arena::use() const {
  const ArenaCounters now = counters();
  return {.what = state_.settings.what,
          .held = now.mapped,
          .used = now.live,
          .cached = now.cached,
          .spilled = now.spilled,
          .reserved = now.reserved,
          .blocks = now.blocks};
}

ArenaCounters Arena::counters() const {
  ArenaCounters counters;
  counters.cached += state_.cached_bytes();
  const Holding holding{state_.lock};
  const Size blocks = state_.layout.block_bytes();
  counters.live = blocks > counters.cached ? blocks - counters.cached : 0;
  counters.free = state_.layout.free().bytes();
  counters.mapped = state_.physical_bytes();
  counters.spilled = state_.far_physical_bytes();
  counters.spilled_free = state_.layout.free().far_bytes();
  counters.reserved = state_.has_ended ? 0 : state_.reservation.size();
  counters.largest_free = state_.layout.free().largest();
  counters.blocks = state_.layout.block_count();
  counters.created = state_.created.load(std::memory_order_relaxed);
  counters.mapped_chunks = state_.mapping.chunk_count();
  counters.moved_chunks = state_.moved_chunks;
  counters.moved = state_.moved_bytes;
  counters.estimates = state_.estimates;
  counters.compacted_granules = state_.compacted_granules;
  counters.compacted = state_.compacted_bytes;
  counters.waits = builder_.waits();
  counters.follows = builder_.follows();
  return counters;
}

Result<Block*> Arena::search_further(Size size, StreamId stream, MemoryPressure& pressure) {
  const MemoryInHand::Holder in_hand{state_.store.in_hand()};
  {
    const Holding holding{state_.lock};
    if (Block* const block =
            state_.take_ordered(size, stream, arena::usual_patience, ResidencyFilter::Near))
      return block;
  }
  state_.flush_usable(stream);
  if (stream != no_stream) state_.order.mark_own(stream);
  arena::Build wanted{.size = size, .stream = stream, .pressure = pressure};
  if (state_.settings.spreads && state_.settings.grow == Grow::Loose) {
    const Holding holding{state_.lock};
    wanted.places = state_.spread.count(size);
    wanted.in_stripes = state_.is_striped(size);
  }
  // When memory is scarce, makes no extra places: others may need it.
  if (wanted.places != 1 && wanted.place_bytes() > state_.supply().room / 4) wanted.places = 1;
  return builder_.build(wanted);
}

Size Arena::trim(Size keep) {
  state_.flush_all();
  const Holding holding{state_.lock};
  if (state_.is_away) return 0;
  state_.retry_refused();
  state_.find_free_for_others();
  const Size mapped = state_.physical_bytes();
  return state_.release_chunks([&](const Chunk& chunk, Size so_far) {
    if (mapped - so_far <= keep) return ArenaState::Choice::Stop;
    return mapped - so_far - chunk.size() >= keep ? ArenaState::Choice::Released
                                                  : ArenaState::Choice::Keep;
  });
}

Size Arena::release(Size wanted) {
  state_.flush_all();
  const Holding holding{state_.lock};
  if (state_.is_away) return 0;
  state_.retry_refused();
  state_.find_free_for_others();
  return state_.release_chunks([&](const Chunk& chunk, Size so_far) {
    if (so_far >= wanted) return ArenaState::Choice::Stop;
    return chunk.location() == state_.here ? ArenaState::Choice::Released
                                           : ArenaState::Choice::Keep;
  });
}

Size Arena::reclaim(Size wanted, Location where) {
  if (!(where == state_.here) && state_.far_free.load(std::memory_order_relaxed) == 0) return 0;
  // The calling thread may hold any lock, so only try the locks here.
  if (!state_.try_flush_all()) return 0;
  const Holding holding{state_.lock, std::try_to_lock};
  if (!holding.owns_lock() || state_.is_away) return 0;
  state_.find_free_for_others();
  return state_.release_chunks([&](const Chunk& chunk, Size so_far) {
    if (so_far >= wanted) return ArenaState::Choice::Stop;
    return chunk.location() == where ? ArenaState::Choice::Released : ArenaState::Choice::Keep;
  });
}

Size Arena::could_share(Size wanted) {
  state_.flush_all();
  const Holding holding{state_.lock};
  if (state_.is_away || state_.has_ended || !state_.torn.empty()) return 0;
  state_.look_at_pending(ArenaState::Taker::Others);
  return state_.could_gain(state_.in_granules(wanted)) * state_.layout.unit();
}

// Called without the lock, because the store may call back. To create a chunk, the store may
// release free chunks of other sizes.
std::vector<ChunkRef> Arena::spare_chunks(bool may_create) {
  const ChunkKind kind{state_.layout.unit(), state_.here, state_.settings.exportable};
  std::vector<ChunkRef> spares;
  while (spares.size() < most_spares) {
    ChunkRef spare = state_.store.take_free(kind);
    if (!spare && may_create) {
      Result<ChunkRef> created = state_.store.take(kind, this);
      if (!created.ok()) break;
      spare = std::move(*created);
      state_.created.fetch_add(1, std::memory_order_relaxed);
    }
    if (!spare) break;
    spares.push_back(std::move(spare));
  }
  return spares;
}

// Releases free chunks of any size, to make memory for spare ones. The request that all this is for
// takes them from the store again.
void Arena::release_for_spares() {
  const Size enough = most_spares * state_.layout.unit();
  (void)state_.release_chunks([&](const Chunk& chunk, Size so_far) {
    if (so_far >= enough) return ArenaState::Choice::Stop;
    return chunk.location() == state_.here ? ArenaState::Choice::Released
                                           : ArenaState::Choice::Keep;
  });
}

Result<Size> Arena::share(Size wanted, const CopyBy& copy) {
  state_.flush_all();
  Size freed = 0;
  bool creates_spares = false;
  Sharing::Aim aim = Sharing::Aim::Gain;
  arena::Consolidations consolidations;
  while (freed < wanted) {
    const std::vector<ChunkRef> spares =
        aim == Sharing::Aim::Gain ? spare_chunks(creates_spares) : std::vector<ChunkRef>{};
    const Holding holding{state_.lock};
    if (state_.is_away || state_.has_ended) break;
    state_.retry_refused();
    state_.look_at_pending(ArenaState::Taker::Others);
    freed += state_.release_smallest(state_.end_unused_sharing());
    if (freed >= wanted || !state_.torn.empty()) break;
    const Result<Sharing::Gained> gained =
        state_.sharing().gain(state_.in_granules(wanted - freed), aim, spares, copy);
    state_.note_mapped();
    if (!gained.ok()) {
      if (freed != 0) break;
      return gained.error();
    }
    if (gained->lacks_spares) release_for_spares();
    if (gained->moves == 0) {
      if (aim == Sharing::Aim::Consolidate) break;
      const bool may_create = gained->lacks_spares && !creates_spares;
      if (!may_create) {
        if (!consolidations.is_worthwhile(wanted - freed)) break;
        aim = Sharing::Aim::Consolidate;
      }
      creates_spares = may_create;
      continue;
    }
    aim = Sharing::Aim::Gain;
    creates_spares = gained->lacks_spares;
    state_.compacted_granules += gained->moves;
    state_.compacted_bytes += gained->bytes_moved;
    const Size more = gained->granules * state_.layout.unit();
    freed += more;
    consolidations.note_gain(more);
    state_.tell();
  }
  return freed;
}

InvariantViolation Arena::violation() const {
  return state_.violation();
}

}  // namespace cuvmm
