// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/arena_state.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "alloc/arena/sharing.hpp"
#include "trace/record_event.hpp"

namespace cuvmm::arena {
namespace {

// A stream's cache keeps at most this share of a device's memory.
constexpr Size share_of_cache = 8;

}  // namespace

ArenaState::ArenaState(ChunkStore& chunks, StreamOrder& streams, const ArenaSettings& chosen,
                       Reservation addresses)
    : store(chunks),
      order(streams),
      settings(chosen),
      here(Location::device(chosen.device)),
      traced(chosen.device, chosen.what),
      reservation(std::move(addresses)),
      cache_bounds{.bytes = chosen.device_memory / share_of_cache},
      access(chosen.access),
      mapping(empty_mapping()),
      layout(reservation.address(), reservation.size(), chosen.smallest_chunk) {}

void ArenaState::clear() {
  torn.clear();
  mapping = empty_mapping();
  layout.clear();
  stripe_rows.clear();
  note_mapped();
}

Range* ArenaState::best_fit(Size size, StreamId stream, Patience patience, ResidencyFilter reach,
                            Size below) const {
  const FreeRanges& free = layout.free();
  const auto accepts = [=](const Range& range) {
    return range.size() < below && is_within(reach, range);
  };
  Range* best = free.best_fit(stream, size, patience, accepts);
  if (stream != no_stream) {
    // Between equal ranges prefer the stream's own: the others can serve any stream.
    Range* const anyones = free.best_fit(no_stream, size, patience, accepts);
    if (anyones != nullptr && (best == nullptr || anyones->size() < best->size())) best = anyones;
  }
  return best;
}

Size ArenaState::size_for(Size asked) const {
  const bool may_share = settings.spreads && asked >= Spread::smallest;
  return round_up(asked, may_share ? layout.unit() / LiveParts::parts : step);
}

Block* ArenaState::take_own(Size size, StreamId stream, Patience patience, ResidencyFilter reach) {
  if (is_striped(size)) {
    // From any stripe, so that blocks that are allocated in a row lie in several.
    const Size blocks = 1 + spread.pick(blocks_a_stripe);
    Range* const of_stripe = best_fit(size * blocks, stream, patience, reach, 2 * layout.unit());
    if (of_stripe != nullptr) return carve(of_stripe, size, stream);
  }
  return carve(best_fit(size, stream, patience, reach, unlimited), size, stream);
}

Block* ArenaState::carve(Range* range, Size size, StreamId stream) {
  if (range == nullptr) return nullptr;
  const bool is_far = range->residency == Residency::Far;
  Size offset = 0;
  if (settings.spreads) {
    if (range->size() == size && !is_striped(size) && spread.leaves_last(size)) return nullptr;
    spread.note(size);
    offset = spread.pick(std::min(spread.count(size), range->size() / size)) * size;
  }
  Block& block = offset == 0 ? layout.carve(*range, size, stream)
                             : layout.carve(*range, {range->begin() + offset, size}, stream);
  if (is_far) far_free.store(layout.free().far_bytes(), std::memory_order_relaxed);
  return &block;
}

Block* ArenaState::take_ordered(Size size, StreamId stream, Patience patience,
                                ResidencyFilter reach) {
  Range* best = nullptr;
  layout.free().for_each_stream([&](StreamId owner, const SizeIndex& index) {
    if (owner == stream) return;
    Range* const fit = index.best_fit(size, patience, [&](const Range& range) {
      return is_within(reach, range) && may_use(range, stream, order);
    });
    if (fit != nullptr && (best == nullptr || fit->size() < best->size())) best = fit;
  });
  if (best == nullptr) return nullptr;
  const bool is_pending = order.is_across_barrier(best->freeing.ticket, stream);
  Block* const block = carve(best, size, stream);
  if (block != nullptr) block->is_behind_others = is_pending;
  return block;
}

void ArenaState::look_at_pending(Taker taker) {
  layout.free().for_each_stream([&](StreamId owner, const SizeIndex&) {
    taker == Taker::Others ? order.poll_for_eviction(owner) : order.look(owner);
  });
  layout.settle(order);
}

void ArenaState::gather_from_many_streams() {
  if (layout.free().owners() <= expected_owners) return;
  look_at_pending();
  expected_owners = std::max(few_owners, 2 * layout.free().owners());
}

void ArenaState::give_back(Block& block, const FreeTicket& ticket) {
  if (has_ended) return;  // all blocks ended with it
  ++given_back;
  give_back_tile(block, ticket);
  if (!torn.empty()) [[unlikely]]
    sharing().hide_torn();
}

void ArenaState::give_back_tile(Block& block, const FreeTicket& ticket) {
  if (block.residency == Residency::Near) return layout.give_back(block, ticket);
  layout.give_back(block, ticket, far_within(layout.stretch_of(block)));
  far_free.store(layout.free().far_bytes(), std::memory_order_relaxed);
}

std::vector<Stretch> ArenaState::far_within(const Stretch& where) const {
  std::vector<Stretch> far;
  if (mapping.far_bytes() == 0) return far;
  for (const MappedChunk& chunk : mapping.chunks_in(where)) {
    if (residency(chunk.chunk->location(), settings.device) == Residency::Near) continue;
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

ChunkPolicy::Supply ArenaState::supply() const {
  const ChunkCounters chunks = store.counters(here);
  const Budget& budget = *store.budget(here);
  const Size in_use = chunks.physical_in_use + chunks.physical_unreleased;
  const Size taken = in_use + chunks.physical_free + budget.native_bytes();
  const Size device = settings.device_memory > taken ? settings.device_memory - taken : 0;
  return {.held = in_use,
          .room = std::min(budget.available(), device) + chunks.physical_free,
          .mapped = mapped.load(std::memory_order_relaxed)};
}

Result<void> ArenaState::commit(Rearrangement& change) {
  const Result<void> done = change.commit();
  note_mapped();
  moved_bytes += change.moved_bytes();
  moved_chunks += change.moved_count();
  return done;
}

Size ArenaState::release_chunks(const std::function<Choice(const Chunk&, Size)>& choose) {
  const WholeChunks whole{mapping};
  Rearrangement change = rearrangement();
  Size chosen = 0;
  Choice choice = Choice::Keep;
  for (Range* range = layout.free().by_age().oldest(); range != nullptr && choice != Choice::Stop;
       range = range->newer) {
    if (!is_idle(*range, order)) continue;
    const Stretch chunks = whole.of(*range);
    for (Size end = chunks.end(); end > chunks.offset && choice != Choice::Stop;) {
      const MappedChunk& chunk = whole.at(end - 1);
      end = chunk.offset;
      choice = choose(*chunk.chunk, chosen);
      if (choice != Choice::Released) continue;
      change.release(*range, chunk);
      chosen += chunk.chunk->size();
    }
  }
  if (change.is_empty()) return 0;
  // Chunks that the driver refuses to unmap stay where they are.
  (void)commit(change);
  tell();
  return change.gone_bytes();
}

Size ArenaState::release_smallest(Size count) {
  return release_chunks([&](const Chunk& chunk, Size) {
    if (count == 0) return Choice::Stop;
    if (chunk.size() != layout.unit() || !(chunk.location() == here)) return Choice::Keep;
    --count;
    return Choice::Released;
  });
}

void ArenaState::release_spilled() {
  const Size far = layout.free().far_bytes();
  if (far == 0 || supply().room < far) return;
  release_chunks([&](const Chunk& chunk, Size) {
    return chunk.location() == here ? Choice::Keep : Choice::Released;
  });
}

void ArenaState::retry_refused() {
  if (!torn.empty()) {
    sharing().restore_torn();
    note_mapped();
  }
  if (layout.broken().count() == 0) return;
  Rearrangement change = rearrangement();
  for (Range* range = layout.broken().oldest(); range != nullptr; range = range->newer) {
    change.release(*range, *mapping.find(range->begin()));
  }
  (void)commit(change);
}

void ArenaState::find_free_for_others() {
  look_at_pending(Taker::Others);
  end_unused_sharing_after_frees();
}

Sharing ArenaState::sharing() {
  return Sharing{{.layout = layout,
                  .mapping = mapping,
                  .torn = torn,
                  .access = access,
                  .order = order,
                  .rows = stripe_rows,
                  .where = here}};
}

// A program may repeat a request that fails, and each estimate walks everything.
Size ArenaState::could_gain(Size granules) {
  // Moving blocks gains no more than is free. Small blocks that go far ask this each time.
  const Size near = layout.free().bytes() - layout.free().far_bytes();
  if (near < layout.unit() && layout.shadow_bytes() == 0) return 0;
  const std::uint64_t changes = layout.free().changes();
  const bool is_known =
      shortfall && shortfall->free_changes == changes && granules >= shortfall->wanted;
  if (is_known) return shortfall->could_gain;
  ++estimates;
  const Sharing::Estimate could = sharing().could_gain(granules);
  // Memory that has to stay now may become movable later, without a change here.
  if (could.granules < granules && !could.some_stay) {
    shortfall = {granules, could.granules, changes};
  }
  return could.granules;
}

Size ArenaState::end_unused_sharing() {
  if (layout.shadow_bytes() == 0) return 0;
  const Sharing::Ended ended = sharing().end_unused();
  looked_after = ended.some_pending ? no_look : given_back;
  note_mapped();
  return ended.chunks;
}

Size ArenaState::end_unused_sharing_after_frees() {
  return looked_after != given_back ? end_unused_sharing() : 0;
}

Size ArenaState::movable_bytes(ResidencyFilter reach) const {
  const WholeChunks whole{mapping};
  Size bytes = 0;
  for (Range* range = layout.free().by_age().oldest(); range != nullptr; range = range->newer) {
    if (!is_idle(*range, order) || !is_within(reach, *range)) continue;
    bytes += whole.of(*range).size;
  }
  return bytes;
}

Mapping ArenaState::empty_mapping() const {
  Mapping empty = Mapping::of(reservation);
  empty.be_at_home_on(settings.device);
  return empty;
}

void ArenaState::note_mapped() {
  mapped.store(physical_bytes(), std::memory_order_relaxed);
  far_mapped.store(mapping.far_bytes(), std::memory_order_relaxed);
  far_free.store(layout.free().far_bytes(), std::memory_order_relaxed);
}

void ArenaState::tell() const {
  if (!trace_is_on()) return;
  const Size blocks = layout.block_bytes();
  const Size kept = std::min(cached_bytes(), blocks);
  traced.tell({.used = blocks - kept,
               .free = layout.free().bytes() + kept,
               .moved = moved_bytes,
               .compacted = compacted_bytes});
}

Size ArenaState::far_physical_bytes() const {
  if (layout.shadow_bytes() == 0 || mapping.far_bytes() == 0) return mapping.far_bytes();
  std::unordered_set<CUmemGenericAllocationHandle> seen;
  Size bytes = 0;
  mapping.for_each([&](const MappedChunk& one) {
    if (one.chunk->location() == here || !seen.insert(one.chunk->handle()).second) return;
    bytes += one.chunk->size();
  });
  return bytes;
}

void ArenaState::flush(StreamCache& cache) {
  cache.empty_into([&](Block& block, const FreeTicket& since) { give_back(block, since); });
}

void ArenaState::flush_all() {
  for (StreamCache& cache : caches) {
    const Holding cached = cache.lock();
    if (cache.is_empty()) continue;
    const Holding holding{lock};
    flush(cache);
  }
}

void ArenaState::flush_usable(StreamId stream) {
  const auto may_use = [&](const StreamCache& cache) {
    const auto oldest = cache.oldest();
    return !oldest || oldest->stream == stream || order.is_free_for_anyone(*oldest) ||
           order.is_before(*oldest, stream);
  };
  std::vector<std::pair<StreamCache*, StreamId>> pending;
  const auto flush_if_usable = [&](StreamCache& cache) {
    const Holding cached = cache.lock();
    if (cache.is_empty()) return;
    if (!may_use(cache)) {
      pending.emplace_back(&cache, cache.oldest()->stream);
      return;
    }
    const Holding holding{lock};
    flush(cache);
  };
  for (StreamCache& cache : caches) flush_if_usable(cache);
  for (const auto& [cache, owner] : pending) order.look(owner);
  for (const auto& [cache, owner] : std::exchange(pending, {})) flush_if_usable(*cache);
}

bool ArenaState::try_flush_all() {
  for (StreamCache& cache : caches) {
    const Holding cached = cache.try_lock();
    if (!cached.owns_lock() || cache.is_empty()) continue;
    const Holding holding{lock, std::try_to_lock};
    if (!holding.owns_lock()) return false;
    flush(cache);
  }
  return true;
}

void ArenaState::forget_cached() {
  for (StreamCache& cache : caches) {
    const Holding cached = cache.lock();
    cache.empty_into([](Block&, const FreeTicket&) {});
  }
}

Size ArenaState::cached_bytes() const {
  Size cached = 0;
  for (const StreamCache& cache : caches) cached += cache.bytes();
  return cached;
}

}  // namespace cuvmm::arena
