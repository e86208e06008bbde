// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/block_builder.hpp"

#include <algorithm>
#include <utility>

namespace cuvmm::arena {

// Taking chunks and waiting for pending work happen without the lock, because both may call back
// into arenas. So each attempt starts from the current state, with the chunks in hand.
Result<Block*> BlockBuilder::build(Build& build) {
  Holding holding{state_.lock};
  BuildTurns::Turn turn{turns_};
  ReclaimSteps& tried = build.pressure.tried;
  const auto refuse = [&](Size chunks) {
    Error refusal = out_of_memory(build.size, build.refusal, chunks);
    if (tried.any()) tried.stand_in(refusal);
    return refusal;
  };
  const auto unlocked = [&](auto act) {
    holding.unlock();
    auto outcome = act();
    holding.lock();
    return outcome;
  };
  if (is_hopeless(build.size)) return refuse(state_.supply().room);
  for (;;) {
    state_.look_at_pending();
    if (Block* const block = TRY(try_to_build(build))) return block;

    if (!build.is_under_pressure) {
      if (!build.lacks.empty()) {
        tried.add(ReclaimSteps::NewMemory);
        const Result<void> taken = unlocked([&] { return supply_.take(build); });
        if (taken.ok()) continue;
        if (taken.error().kind != ErrorKind::OutOfMemory) return taken.error();
        build.refusal = taken.error();
      }
      if (build.places != 1) {
        build.places = 1;
        continue;
      }
      if (!turn.take_now()) {
        build.hand.clear();
        if (turn.take(holding, build.pressure.until())) continue;
      }
      build.is_under_pressure = true;
      state_.order.memory_is_short();
      holding.unlock();
      state_.flush_all();
      holding.lock();
      continue;
    }

    tried.add(ReclaimSteps::FreeChunks);
    const Result<bool> more = unlocked([&] { return supply_.take_under_pressure(build); });
    if (TRY(more)) continue;
    if (build.reach == ResidencyFilter::Far) {
      build.reach = ResidencyFilter::Both;
      continue;
    }
    if (turn.wait_for_others(holding, build.pressure.until())) continue;
    tried.add(ReclaimSteps::PendingWork);
    const std::vector<FreeTicket> frees = frees_to_follow(build);
    if (unlocked([&] { return follow(frees, build.stream); })) continue;
    if (!is_waiting_futile(build) && unlocked([&] { return wait_for_pending(build); })) continue;
    if (state_.settings.compactor != nullptr) tried.add(ReclaimSteps::LiveBlocks);
    if (unlocked([&] { return compact_for(build); })) continue;
    if (build.reach == ResidencyFilter::Near && state_.store.spills()) {
      tried.add(ReclaimSteps::Elsewhere);
      build.reach = further(build);
      if (build.reach == ResidencyFilter::Far) build.hand.clear();  // for others to use near
      continue;
    }
    build.hand.clear();  // available again
    if (std::exchange(build.puts_off_moving, false)) {
      build.can_spill = false;
      build.reach = ResidencyFilter::Near;
      continue;
    }
    return refuse(state_.supply().room);
  }
}

// Free memory on the device is used if it is a good part of the block. Otherwise the whole block
// lies far, and no chunk moves: unmapping a far chunk takes tens of milliseconds while kernels read
// far memory.
ResidencyFilter BlockBuilder::further(const Build& build) const {
  constexpr Size good_part = 4;
  const Size near = state_.movable_bytes(ResidencyFilter::Near) + build.hand_bytes();
  return near < build.size / good_part ? ResidencyFilter::Far : ResidencyFilter::Both;
}

// Whether the device lacks memory for the block even counting memory with pending work, while there
// may be room elsewhere.
bool BlockBuilder::must_go_far(const Build& build) const {
  if (build.reach != ResidencyFilter::Near || !state_.store.spills()) return false;
  const FreeRanges& free = state_.layout.free();
  const Size near = free.bytes() - free.far_bytes() + build.hand_bytes();
  return near < build.size;
}

// Even if the block must go partly far, a wait may pay off: it costs less than using much memory
// from afar.
bool BlockBuilder::is_waiting_futile(const Build& build) const {
  if (!must_go_far(build)) return false;
  constexpr Size much = 64 * MiB;
  const WholeChunks whole{state_.mapping};
  Size pending = 0;
  for (Range* range = state_.layout.free().by_age().oldest(); range != nullptr;
       range = range->newer) {
    if (is_idle(*range, state_.order) || range->residency == Residency::Far) continue;
    pending += whole.of(*range).size;
  }
  return pending == 0 || pending < std::min(much, build.size / 4);
}

Result<Block*> BlockBuilder::try_to_build(Build& build) {
  if (state_.has_ended) {
    return Error{.kind = ErrorKind::NotFound,
                 .doing = "allocate",
                 .subject = "its pool or context has ended"};
  }
  const bool all = may_move(build);
  if (build.places == 1) state_.spread.settle();
  const Patience patience = all ? endless : usual_patience;
  if (Block* const block = state_.take_own(build.size, build.stream, patience, build.reach))
    return block;
  if (Block* const block = state_.take_ordered(build.size, build.stream, patience, build.reach)) {
    return block;
  }

  state_.retry_refused();
  if (build.places != 1 && build.in_stripes) return build_in_stripes(build);
  const bool is_scarce = build.is_under_pressure && build.reach != ResidencyFilter::Far;
  const Size spare = is_scarce ? build.hand_bytes() + state_.movable_bytes(build.reach) : unlimited;
  AllocationSpanSearch search{
      state_.layout,
      state_.mapping,
      state_.order,
      {.size = build.place_bytes(),
       .stream = build.stream,
       .effort = all ? AllocationSpanSearch::Effort::All : AllocationSpanSearch::Effort::Usual,
       .spare = spare,
       .reach = build.reach}};
  const std::optional<AllocationSpan> span = search.find();
  if (span) return build_at(*span, build);
  build.lacks.clear();
  return nullptr;
}

// Returns nullptr if chunks are missing, or addresses.
Result<Block*> BlockBuilder::build_in_stripes(Build& build) {
  const Size unit = state_.layout.unit();
  const ChunkPolicy::Supply supply = state_.supply();
  const Size chunks = (supply.held + supply.room) / unit;
  const Stripes stripes =
      Stripes::of(build.size, unit, Stripes::blocks_a_stripe(build.size, unit, chunks));
  const Size wanted = stripes.parts().size() * unit;
  build.lacks.clear();
  const bool takes_the_last = stripes.chunks() * unit > supply.room / 4;
  if (takes_the_last && build.hand.empty()) return nullptr;
  Range* hole = state_.layout.tail();
  if (hole == nullptr || hole->size() < wanted) {
    hole = state_.layout.holes().oldest();
    while (hole != nullptr && hole->size() < wanted) hole = hole->newer;
    if (hole == nullptr) return nullptr;
  }
  for (Size had = build.hand.size(); had < stripes.chunks(); ++had) {
    build.lacks.push_back({unit, unit});
  }
  if (!build.lacks.empty()) return nullptr;
  Block* const block =
      TRY(state_.lay_in_stripes(stripes.rotated(state_.spread.pick(stripes.count())), *hole,
                                build.hand, build.size, build.stream));
  build.hand.clear();
  state_.release_spilled();
  return block;
}

Result<Block*> BlockBuilder::build_at(const AllocationSpan& span, Build& build) {
  // The build has new chunks, got without pressure.
  const bool has_room = !build.is_under_pressure && !build.hand.empty();
  GapFill fill{span};
  Rearrangement change = state_.rearrangement();
  change.is_for_a_block();
  std::sort(build.hand.begin(), build.hand.end(),
            [](const ChunkRef& a, const ChunkRef& b) { return a->size() > b->size(); });
  std::vector<ChunkRef> left;
  for (const ChunkRef& chunk : build.hand) {
    if (const auto spot = fill.lay(chunk->size())) {
      change.bring(*spot, chunk);
    } else {
      left.push_back(chunk);
    }
  }
  if (may_move(build)) move_into(span, build.reach, fill, change);
  build.lacks = fill.lacks();
  if (!build.lacks.empty()) return nullptr;

  const bool is_behind_others = holds_pending_of_others(span, build.stream);
  if (change.is_empty()) {
    Block& block = state_.layout.carve(*span.first, place_in(span.where, build), build.stream);
    block.is_behind_others = is_behind_others;
    state_.note_mapped();
    return &block;
  }
  TRY(state_.commit(change));
  build.hand = std::move(left);
  Block& block =
      state_.layout.carve(change.lowest_that_came(), place_in(span.where, build), build.stream);
  state_.layout.join_beside(block);
  if (build.places != 1) state_.layout.join_within(block, span.where);
  block.is_behind_others = is_behind_others;
  if (has_room) state_.release_spilled();
  state_.note_mapped();
  state_.tell();
  return &block;
}

Stretch BlockBuilder::place_in(const Stretch& where, const Build& build) {
  if (state_.settings.spreads) state_.spread.note(build.size);
  return {where.offset + state_.spread.pick(build.places) * build.size, build.size};
}

bool BlockBuilder::holds_pending_of_others(const AllocationSpan& span, StreamId stream) const {
  return any_free_in(span, [&](const Range& range) {
    return state_.order.is_across_barrier(range.freeing.ticket, stream);
  });
}

void BlockBuilder::move_into(const AllocationSpan& span, ResidencyFilter reach, GapFill& fill,
                             Rearrangement& change) {
  const WholeChunks whole{state_.mapping};
  for (Range* range = state_.layout.free().by_age().oldest(); range != nullptr;
       range = range->newer) {
    if (fill.is_complete()) return;
    if (!is_idle(*range, state_.order) || !is_within(reach, *range)) continue;
    const Stretch chunks = whole.of(*range);
    for (Size end = chunks.end(); end > chunks.offset;) {
      const MappedChunk& chunk = whole.at(end - 1);
      end = chunk.offset;
      if (chunk.where().overlaps(span.where)) continue;
      if (const auto spot = fill.lay(chunk.chunk->size())) change.move(*spot, *range, chunk);
    }
  }
}

// With Grow::Tight, moving comes before new memory, and both come before waiting.
bool BlockBuilder::may_move(const Build& build) const {
  if (build.reach == ResidencyFilter::Far) return false;
  return build.is_under_pressure || state_.settings.grow == Grow::Tight;
}

// The requesting stream can wait instead of this thread: for the frees of one sufficient place and
// for nothing else, since other work may have to run after its own.
std::vector<FreeTicket> BlockBuilder::frees_to_follow(const Build& build) const {
  if (build.stream == no_stream) return {};
  const auto may_be_part = [&](const Range& range) {
    return is_within(build.reach, range) &&
           may_use(range, build.stream, state_.order, Use::AfterFollowing);
  };
  const Range* best = nullptr;
  state_.layout.free().for_each_stream([&](StreamId, const SizeIndex& index) {
    const Range* const fit = index.best_fit(build.size, endless, may_be_part);
    if (fit != nullptr && (best == nullptr || fit->size() < best->size())) best = fit;
  });
  if (best != nullptr) return {best->freeing.ticket};
  AllocationSpanSearch search{state_.layout,
                              state_.mapping,
                              state_.order,
                              {.size = build.size,
                               .stream = build.stream,
                               .effort = AllocationSpanSearch::Effort::All,
                               .spare = build.hand_bytes() + state_.movable_bytes(build.reach),
                               .reach = build.reach,
                               .use = Use::AfterFollowing}};
  const std::optional<AllocationSpan> span = search.find();
  std::vector<FreeTicket> frees;
  if (!span) return frees;
  any_free_in(*span, [&](const Range& range) {
    if (!may_use(range, build.stream, state_.order)) frees.push_back(range.freeing.ticket);
    return false;  // all of them
  });
  return frees;
}

// Returns whether the stream now waits for all of them.
bool BlockBuilder::follow(const std::vector<FreeTicket>& frees, StreamId stream) {
  if (frees.empty()) return false;
  for (const FreeTicket& freed : frees) {
    if (!state_.order.follow(freed, stream)) return false;
  }
  follows_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool BlockBuilder::wait_for_pending(Build& build) {
  FreeTicket pending;
  {
    const Holding holding{state_.lock};
    const FreeRanges& free = state_.layout.free();
    // If waiting for one at a time will not suffice, wait for all at once.
    const bool wants_all = must_go_far(build);
    for (Range* range = free.by_age().oldest(); range != nullptr; range = range->newer) {
      if (is_idle(*range, state_.order)) continue;
      pending = range->freeing.ticket;
      if (!wants_all) break;
    }
    // Small ranges may be large enough once joined.
    if (pending.is_for_anyone()) {
      free.for_each_stream([&](StreamId, const SizeIndex& index) {
        index.for_each([&](const Range& range) {
          if (!is_idle(range, state_.order)) pending = range.freeing.ticket;
        });
      });
    }
    if (pending.is_for_anyone()) return false;
    ++waits_;
  }
  if (!state_.order.wait(pending, build.pressure.until())) return false;
  state_.flush_all();
  return true;
}

// Whether the size exceeds everything that could become available even if all others released what
// they hold. Then nothing needs to be tried, and no other holder has to release anything.
bool BlockBuilder::is_hopeless(Size size) const {
  const ChunkPolicy::Supply has = state_.supply();
  const Size mapped = state_.physical_bytes();
  const Size near = mapped - std::min(mapped, state_.mapping.far_bytes());
  const Size others = has.held > near ? has.held - near : 0;
  const Size ours = mapped - std::min(mapped, state_.layout.block_bytes()) + state_.cached_bytes();
  const Size elsewhere = state_.store.spill_room();
  return saturating_sum(has.room, ours, others, elsewhere) < size;
}

// The largest available piece is the largest free range, or all chunks that can be moved together.
Error BlockBuilder::out_of_memory(Size asked, Error refusal, Size chunks) const {
  refusal.kind = ErrorKind::OutOfMemory;
  refusal.doing = "allocate";
  refusal.asked = asked;
  refusal.available = std::max(state_.layout.free().for_anyone().largest(),
                               state_.movable_bytes(ResidencyFilter::Near) + chunks);
  return refusal;
}

// Returns whether it is worthwhile to try again.
bool BlockBuilder::compact_for(Build& build) {
  constexpr int compactions_at_most = 4;  // other threads may take what was gained
  if (state_.settings.compactor == nullptr || build.reach != ResidencyFilter::Near) return false;
  if (build.lacks.empty()) return false;  // addresses are missing, not memory
  const Size missing = state_.in_granules(build.lacking_bytes()) * state_.layout.unit();
  Compactor& compactor = *state_.settings.compactor;
  build.puts_off_moving = build.can_spill && build.compactions == 0 && compactor.is_resting() &&
                          state_.store.spill_room() >= missing;
  if (build.puts_off_moving || build.compactions++ == compactions_at_most) return false;
  build.hand.clear();  // breaking up large chunks takes free ones
  return compactor.make_room(missing, build.stream, build.pressure.until());
}

}  // namespace cuvmm::arena
