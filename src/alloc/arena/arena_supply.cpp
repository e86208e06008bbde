// SPDX-License-Identifier: Apache-2.0
// Taking chunks from the store and giving them back.
#include <algorithm>

#include "alloc/arena/arena.hpp"
#include "alloc/arena/sharing.hpp"

namespace cuvmm {

using arena::Build;
using arena::GapFill;
using arena::Range;
using arena::Rearrangement;
using arena::ResidencyFilter;
using arena::StreamCache;
using arena::WholeChunks;

ChunkPolicy::Supply Arena::supply() const {
  const ChunkCounters chunks = store_.counters(here_);
  const Budget& budget = *store_.budget(here_);
  const Size in_use = chunks.physical_in_use + chunks.physical_unreleased;
  const Size taken = in_use + chunks.physical_free + budget.native_bytes();
  const Size device = settings_.device_memory > taken ? settings_.device_memory - taken : 0;
  return {.held = in_use,
          .room = std::min(budget.available(), device) + chunks.physical_free,
          .mapped = mapped_bytes()};
}

Result<ChunkRef> Arena::take_chunk(Size size, Size most) {
  const ChunkKind kind{size, here_, settings_.exportable};
  if (ChunkRef free = store_.take_free(kind)) return free;
  if (store_.budget(here_)->available() < size) {
    const auto take_free = [&](Size other) {
      return store_.take_free({other, here_, settings_.exportable});
    };
    for (Size other = size; other <= most / 2;) {
      if (ChunkRef free = take_free(other *= 2)) return free;
    }
    for (Size other = size; other > settings_.smallest_chunk;) {
      if (ChunkRef free = take_free(other /= 2)) return free;
    }
  }
  ChunkRef taken = TRY(store_.take(kind, this));
  created_.fetch_add(1, std::memory_order_relaxed);
  return taken;
}

Result<void> Arena::take_chunks(Build& build) {
  const Size smallest = settings_.smallest_chunk;
  for (GapFill::Lack lack : build.lacks) {
    while (lack.need != 0) {
      Size size = settings_.chunks.choose(lack.need, lack.room, smallest, settings_.grow, supply());
      while (size > build.largest_chunk) size /= 2;
      Result<ChunkRef> taken = take_chunk(size, lack.room);
      if (!taken.ok()) {
        if (taken.error().kind != ErrorKind::OutOfMemory || size == smallest) {
          return taken.error();
        }
        build.largest_chunk = size / 2;
        continue;
      }
      const Size got = (*taken)->size();
      build.hand.push_back(std::move(taken).value());
      lack.need -= std::min(lack.need, got);
      lack.room -= got;
    }
  }
  return {};
}

// The store may have chunks again by now. Free chunks that are too large for any gap are given to
// it, so that small ones can be made of their memory.
Result<bool> Arena::take_under_pressure(Build& build) {
  const std::size_t before = build.hand.size();
  const auto has_more = [&]() -> Result<bool> {
    const Result<void> taken = take_chunks(build);
    if (!taken.ok() && taken.error().kind != ErrorKind::OutOfMemory) return taken.error();
    return build.hand.size() > before;
  };
  if (build.reach != ResidencyFilter::Far && TRY(has_more())) return true;
  if (build.reach != ResidencyFilter::Near) {
    const Result<void> taken = take_spilled(build);
    if (!taken.ok()) {
      if (taken.error().kind != ErrorKind::OutOfMemory) return taken.error();
      build.refusal = taken.error();
    }
    return build.hand.size() > before;
  }
  const Size lacking = build.lacking_bytes();
  {
    const Holding holding{lock_};
    if (end_unused_sharing_after_frees() != 0) return true;
    const Size gone = release_chunks([&](const Chunk& chunk, Size so_far) {
      if (so_far >= lacking) return Choice::Stop;
      const bool helps = chunk.location() == here_ && chunk.size() > settings_.smallest_chunk;
      return helps ? Choice::Released : Choice::Keep;
    });
    if (gone == 0) return false;
  }
  return has_more();
}

// Large chunks first: each costs the same to map, and small ones take longer to pin. If the whole
// block lies far and there is plenty of room, takes more than is lacking, for later blocks.
Result<void> Arena::take_spilled(Build& build) {
  constexpr Size largest = 32 * MiB;
  constexpr Size small_part = 64;
  const Size smallest = settings_.smallest_chunk;
  const Size plenty = build.reach == ResidencyFilter::Far ? store_.spill_room() / small_part : 0;
  for (GapFill::Lack lack : build.lacks) {
    const auto wanted = [&] { return std::min(lack.room, std::max(lack.need, plenty)); };
    Size size = smallest;
    while (size <= largest / 2 && size * 2 <= wanted()) size *= 2;
    while (lack.need != 0) {
      while (size > smallest && size > wanted()) size /= 2;
      Result<ChunkRef> taken = store_.take_spilled(size, settings_.exportable);
      if (!taken.ok()) {
        if (size == smallest) return taken.error();
        size /= 2;
        continue;
      }
      created_.fetch_add(1, std::memory_order_relaxed);
      build.hand.push_back(std::move(taken).value());
      lack.need -= std::min(lack.need, size);
      lack.room -= size;
    }
  }
  return {};
}

template <class Choose>
Size Arena::release_chunks(Choose choose) {
  const WholeChunks whole{mapping_};
  Rearrangement change = rearrangement();
  Size chosen = 0;
  Choice choice = Choice::Keep;
  for (Range* range = layout_->free().by_age().oldest(); range != nullptr && choice != Choice::Stop;
       range = range->newer) {
    if (!arena::is_idle(*range, order_)) continue;
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

Size Arena::trim(Size keep) {
  flush_all();
  const Holding holding{lock_};
  if (is_away_) return 0;
  mend();
  look_at_pending(Taker::Others);
  end_unused_sharing_after_frees();
  const Size mapped = physical_bytes();
  return release_chunks([&](const Chunk& chunk, Size so_far) {
    if (mapped - so_far <= keep) return Choice::Stop;
    return mapped - so_far - chunk.size() >= keep ? Choice::Released : Choice::Keep;
  });
}

void Arena::release_wanted(const std::function<bool(const Chunk&)>& wanted) {
  release_chunks(
      [&](const Chunk& chunk, Size) { return wanted(chunk) ? Choice::Released : Choice::Keep; });
}

// Releases up to so many free chunks of the smallest size. Returns how many bytes that was.
Size Arena::release_smallest(Size count) {
  return release_chunks([&](const Chunk& chunk, Size) {
    if (count == 0) return Choice::Stop;
    if (chunk.size() != layout_->unit() || !(chunk.location() == here_)) return Choice::Keep;
    --count;
    return Choice::Released;
  });
}

// Releases free spilled memory once the device has room for as much. Before that it would soon be
// needed again, and unmapping it is expensive.
void Arena::release_spilled() {
  const Size far = layout_->free().far_bytes();
  if (far == 0 || supply().room < far) return;
  release_chunks([&](const Chunk& chunk, Size) {
    return chunk.location() == here_ ? Choice::Keep : Choice::Released;
  });
}

Size Arena::release(Size wanted) {
  flush_all();
  const Holding holding{lock_};
  if (is_away_) return 0;
  mend();
  look_at_pending(Taker::Others);
  end_unused_sharing_after_frees();
  return release_chunks([&](const Chunk& chunk, Size so_far) {
    if (so_far >= wanted) return Choice::Stop;
    return chunk.location() == here_ ? Choice::Released : Choice::Keep;
  });
}

Size Arena::reclaim(Size wanted, Location where) {
  if (!(where == here_) && far_free_.load(std::memory_order_relaxed) == 0) return 0;
  // The calling thread may hold any lock, so only try the locks here.
  for (StreamCache& cache : caches_) {
    const Holding cached = cache.try_lock();
    if (!cached.owns_lock() || cache.is_empty()) continue;
    const Holding holding{lock_, std::try_to_lock};
    if (!holding.owns_lock()) return 0;
    flush(cache);
  }
  const Holding holding{lock_, std::try_to_lock};
  if (!holding.owns_lock() || is_away_) return 0;
  look_at_pending(Taker::Others);
  end_unused_sharing_after_frees();
  return release_chunks([&](const Chunk& chunk, Size so_far) {
    if (so_far >= wanted) return Choice::Stop;
    return chunk.location() == where ? Choice::Released : Choice::Keep;
  });
}

void Arena::mend() {
  if (!torn_.empty()) {
    sharing().mend();
    note_mapped();
  }
  if (layout_->broken().count() == 0) return;
  Rearrangement change = rearrangement();
  for (Range* range = layout_->broken().oldest(); range != nullptr; range = range->newer) {
    change.release(*range, *mapping_.find(range->begin()));
  }
  (void)commit(change);
}

}  // namespace cuvmm
