// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/arena.hpp"
#include "alloc/arena/sharing.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "trace/record_event.hpp"

namespace cuvmm {

using arena::Layout;
using arena::StreamCache;

namespace {

// A stream's cache keeps at most this share of a device's memory.
constexpr Size share_of_cache = 8;

ArenaSettings complete(ArenaSettings settings) {
  if (settings.smallest_chunk == 0) settings.smallest_chunk = settings.granule;
  settings.reserve = round_up(settings.reserve, settings.smallest_chunk);
  return settings;
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
  Reservation addresses = TRY(Reservation::create(driver, chosen.reserve, chosen.granule));
  std::unique_ptr<Arena> made{new Arena{store, order, chosen, std::move(addresses)}};
  made->registration_ = store.add_client(*made, chosen.reclaim_order);
  return made;
}

Arena::Arena(ChunkStore& store, StreamOrder& order, const ArenaSettings& settings,
             Reservation reservation)
    : store_(store),
      order_(order),
      settings_(settings),
      here_(Location::device(settings.device)),
      traced_(settings.device, settings.what),
      reservation_(std::move(reservation)),
      cache_bounds_{.bytes = settings.device_memory / share_of_cache},
      access_(settings.access),
      mapping_(empty_mapping()),
      layout_(std::make_unique<Layout>(reservation_.address(), reservation_.size(),
                                       settings.smallest_chunk)) {}

Result<Block*> Arena::allocate(Size asked, StreamId stream) {
  const Size size = round_up(asked, arena::step);
  if (asked == 0) return Error::invalid("allocate", "no bytes");
  if (size == 0 || size > reservation_.size() || size > settings_.device_memory) {
    const Holding holding{lock_};
    return out_of_memory(asked, {.subject = "more than the device has"}, supply().room);
  }
  Holding holding{lock_, std::defer_lock};
  if (stream != no_stream) {
    StreamCache& cache = cache_of(stream);
    const Holding cached = cache.lock();
    if (Block* const block = cache.take(size, stream)) return block;
    // Only free ranges in the layout can join, so flush what the stream keeps.
    holding.lock();
    if (!cache.is_empty()) flush(cache);
  } else {
    holding.lock();
  }
  if (Block* const block =
          take_own(size, stream, arena::usual_patience, arena::ResidencyFilter::Near))
    return block;
  holding.unlock();
  return search_further(size, stream);
}

void Arena::free(Block& block, const FreeTicket& ticket) {
  // Far memory is for requests that find no room on the device, not for the next one of this size.
  if (ticket.is_for_anyone() || ticket.stream != block.stream ||
      block.residency == Residency::Far) {
    const Holding holding{lock_};
    return give_back(block, ticket);
  }
  StreamCache& cache = cache_of(ticket.stream);
  const Holding cached = cache.lock();
  if (cache.put(block, ticket.tick, cache_bounds_)) return;
  const Holding holding{lock_};
  flush(cache);
  give_back(block, ticket);
}

void Arena::give_back(Block& block, const FreeTicket& ticket) {
  ++given_back_;
  give_back_tile(block, ticket);
  if (!torn_.empty()) [[unlikely]]
    sharing().hide_torn();
}

void Arena::give_back_tile(Block& block, const FreeTicket& ticket) {
  if (block.residency == Residency::Near) return layout_->give_back(block, ticket);
  layout_->give_back(block, ticket, far_within(layout_->stretch_of(block)));
  far_free_.store(layout_->free().far_bytes(), std::memory_order_relaxed);
}

std::vector<Stretch> Arena::far_within(const Stretch& where) const {
  std::vector<Stretch> far;
  if (mapping_.far_bytes() == 0) return far;
  for (const MappedChunk& chunk : mapping_.chunks_in(where)) {
    if (residency(chunk.chunk->location(), settings_.device) == Residency::Near) continue;
    const Size begin = std::max(chunk.offset, where.offset);
    const Size end = std::min(chunk.where().end(), where.end());
    if (!far.empty() && far.back().end() == begin) {
      far.back().size += end - begin;
    } else {
      far.push_back({begin, end - begin});
    }
  }
  return far;
}

void Arena::flush(StreamCache& cache) {
  cache.empty_into([&](Block& block, const FreeTicket& since) { give_back(block, since); });
}

void Arena::flush_all() {
  for (StreamCache& cache : caches_) {
    const Holding cached = cache.lock();
    if (cache.is_empty()) continue;
    const Holding holding{lock_};
    flush(cache);
  }
}

void Arena::flush_usable(StreamId stream) {
  const auto may_use = [&](const StreamCache& cache) {
    const auto oldest = cache.oldest();
    return !oldest || oldest->stream == stream || order_.is_free_for_anyone(*oldest) ||
           order_.is_before(*oldest, stream);
  };
  std::vector<std::pair<StreamCache*, StreamId>> pending;
  const auto flush_if_usable = [&](StreamCache& cache) {
    const Holding cached = cache.lock();
    if (cache.is_empty()) return;
    if (!may_use(cache)) {
      pending.emplace_back(&cache, cache.oldest()->stream);
      return;
    }
    const Holding holding{lock_};
    flush(cache);
  };
  for (StreamCache& cache : caches_) flush_if_usable(cache);
  for (const auto& [cache, owner] : pending) order_.look(owner);
  for (const auto& [cache, owner] : std::exchange(pending, {})) flush_if_usable(*cache);
}

Size Arena::cached_bytes() const {
  Size cached = 0;
  for (const StreamCache& cache : caches_) cached += cache.bytes();
  return cached;
}

Result<void> Arena::set_access(const AccessSet& access) {
  const Holding holding{lock_};
  mend();
  MapPlan plan;
  Stretch run;
  const auto allow_run = [&] {
    if (run.size != 0) plan.allow(mapping_, run, access);
  };
  mapping_.for_each([&](const MappedChunk& mapped) {
    if (mapped.offset != run.end()) {
      allow_run();
      run = {mapped.offset, 0};
    }
    run.size += mapped.chunk->size();
  });
  allow_run();
  TRY(plan.commit());
  access_ = access;
  return {};
}

AccessSet Arena::access() const {
  const Holding holding{lock_};
  return access_;
}

void Arena::end() {
  for (StreamCache& cache : caches_) {
    const Holding cached = cache.lock();
    cache.empty_into([](Block&, const FreeTicket&) {});
  }
  const Holding holding{lock_};
  tell();
  torn_.clear();
  mapping_ = empty_mapping();
  layout_->clear();
  note_mapped();
  end_addresses();
}

bool Arena::end_if_empty() {
  trim(0);
  const Holding holding{lock_};
  if (mapping_.mapped_bytes() != 0 || layout_->block_count() != 0) return false;
  end_addresses();
  return true;
}

void Arena::end_addresses() {
  has_ended_ = true;
  reservation_.end();
}

Mapping Arena::empty_mapping() const {
  Mapping mapping = Mapping::of(reservation_);
  mapping.be_at_home_on(settings_.device);
  return mapping;
}

void Arena::note_mapped() {
  mapped_.store(physical_bytes(), std::memory_order_relaxed);
  far_mapped_.store(mapping_.far_bytes(), std::memory_order_relaxed);
  far_free_.store(layout_->free().far_bytes(), std::memory_order_relaxed);
}

void Arena::tell() const {
  if (!trace_is_on()) return;
  const Size blocks = layout_->block_bytes();
  const Size kept = std::min(cached_bytes(), blocks);
  traced_.tell({.used = blocks - kept,
                .free = layout_->free().bytes() + kept,
                .moved = moved_bytes_,
                .compacted = compacted_bytes_});
}

void Arena::tell_trace() const {
  const Holding holding{lock_, std::try_to_lock};
  if (holding.owns_lock()) tell();
}

std::vector<MappedChunk> Arena::chunks_behind(const Block& block) const {
  const Holding holding{lock_};
  return mapping_.chunks_in({block.address() - reservation_.address(), block.granted()});
}

RegionUse Arena::use() const {
  const ArenaCounters now = counters();
  return {.what = settings_.what,
          .held = now.mapped,
          .used = now.live,
          .cached = now.cached,
          .spilled = now.spilled,
          .reserved = now.reserved,
          .blocks = now.blocks};
}

// A chunk counts once, wherever it is mapped.
Size Arena::far_physical_bytes() const {
  if (layout_->shadow_bytes() == 0 || mapping_.far_bytes() == 0) return mapping_.far_bytes();
  std::unordered_set<CUmemGenericAllocationHandle> seen;
  Size bytes = 0;
  mapping_.for_each([&](const MappedChunk& mapped) {
    if (mapped.chunk->location() == here_ || !seen.insert(mapped.chunk->handle()).second) return;
    bytes += mapped.chunk->size();
  });
  return bytes;
}

ArenaCounters Arena::counters() const {
  ArenaCounters counters;
  counters.cached += cached_bytes();
  const Holding holding{lock_};
  const Size blocks = layout_->block_bytes();
  counters.live = blocks > counters.cached ? blocks - counters.cached : 0;
  counters.free = layout_->free().bytes();
  counters.mapped = physical_bytes();
  counters.spilled = far_physical_bytes();
  counters.spilled_free = layout_->free().far_bytes();
  counters.reserved = has_ended_ ? 0 : reservation_.size();
  counters.largest_free = layout_->free().largest();
  counters.blocks = layout_->block_count();
  counters.created = created_.load(std::memory_order_relaxed);
  counters.mapped_chunks = mapping_.chunk_count();
  counters.moved_chunks = moved_chunks_;
  counters.moved = moved_bytes_;
  counters.compacted_granules = compacted_granules_;
  counters.compacted = compacted_bytes_;
  counters.waits = waits_;
  counters.follows = follows_.load(std::memory_order_relaxed);
  return counters;
}

}  // namespace cuvmm
