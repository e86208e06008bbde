// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/chunk_supply.hpp"

#include <algorithm>

namespace cuvmm::arena {

// Never takes a larger free chunk whole: only this arena could use the rest of it.
Result<ChunkRef> ChunkSupply::take_chunk(Size size) {
  const ChunkKind kind{size, state_.here, state_.settings.exportable};
  if (ChunkRef free = state_.store.take_free(kind)) return free;
  if (state_.store.budget(state_.here)->available() < size) {
    for (Size other = size; other > state_.settings.smallest_chunk;) {
      other /= 2;
      if (ChunkRef free = state_.store.take_free({other, kind.location, kind.exportable})) {
        return free;
      }
    }
  }
  ChunkRef taken = TRY(state_.store.take(kind, &arena_));
  state_.created.fetch_add(1, std::memory_order_relaxed);
  return taken;
}

Result<void> ChunkSupply::take(Build& build) {
  const Size smallest = state_.settings.smallest_chunk;
  for (GapFill::Lack lack : build.lacks) {
    while (lack.need != 0) {
      Size size = state_.settings.chunks.choose(lack.need, lack.room, smallest,
                                                state_.settings.grow, state_.supply());
      while (size > build.largest_chunk) size /= 2;
      Result<ChunkRef> taken = take_chunk(size);
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
Result<bool> ChunkSupply::take_under_pressure(Build& build) {
  const std::size_t before = build.hand.size();
  const auto has_more = [&]() -> Result<bool> {
    const Result<void> taken = take(build);
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
    const Holding holding{state_.lock};
    if (state_.end_unused_sharing_after_frees() != 0) return true;
    const Size gone = state_.release_chunks([&](const Chunk& chunk, Size so_far) {
      if (so_far >= lacking) return ArenaState::Choice::Stop;
      const bool helps =
          chunk.location() == state_.here && chunk.size() > state_.settings.smallest_chunk;
      return helps ? ArenaState::Choice::Released : ArenaState::Choice::Keep;
    });
    if (gone == 0) return false;
  }
  return has_more();
}

// Large chunks first: each costs the same to map, and small ones take longer to pin. If the whole
// block lies far and there is plenty of room, takes more than is lacking, for later blocks.
Result<void> ChunkSupply::take_spilled(Build& build) {
  constexpr Size largest = 32 * MiB;
  constexpr Size small_part = 64;
  const Size smallest = state_.settings.smallest_chunk;
  const Size plenty =
      build.reach == ResidencyFilter::Far ? state_.store.spill_room() / small_part : 0;
  for (GapFill::Lack lack : build.lacks) {
    const auto wanted = [&] { return std::min(lack.room, std::max(lack.need, plenty)); };
    Size size = smallest;
    while (size <= largest / 2 && size * 2 <= wanted()) size *= 2;
    while (lack.need != 0) {
      while (size > smallest && size > wanted()) size /= 2;
      Result<ChunkRef> taken = state_.store.take_spilled(size, state_.settings.exportable);
      if (!taken.ok()) {
        if (size == smallest) return taken.error();
        size /= 2;
        continue;
      }
      state_.created.fetch_add(1, std::memory_order_relaxed);
      build.hand.push_back(std::move(taken).value());
      lack.need -= std::min(lack.need, size);
      lack.room -= size;
    }
  }
  return {};
}

}  // namespace cuvmm::arena
