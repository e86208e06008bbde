// SPDX-License-Identifier: Apache-2.0
// Building a block if no free range is large enough: with new chunks, with chunks that move, or
// with memory after a wait for its pending work.
#include <algorithm>

#include "alloc/arena/arena.hpp"
#include "alloc/reclaim_steps.hpp"

namespace cuvmm {

using arena::AllocationSpan;
using arena::AllocationSpanSearch;
using arena::Build;
using arena::BuildTurns;
using arena::GapFill;
using arena::Range;
using arena::Rearrangement;
using arena::ResidencyFilter;
using arena::WholeChunks;

// Taking chunks and waiting for pending work happen without the lock, because both may call back
// into arenas. So each attempt starts from the current state, with the chunks in hand.
Result<Block*> Arena::build(Build& build) {
  Holding holding{lock_};
  BuildTurns::Turn turn{turns_};
  ReclaimSteps tried;
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
  if (is_hopeless(build.size)) return refuse(supply().room);
  for (;;) {
    look_at_pending();
    if (Block* const block = TRY(try_to_build(build))) return block;

    if (!build.is_under_pressure) {
      if (!build.lacks.empty()) {
        tried.add(ReclaimSteps::NewMemory);
        const Result<void> taken = unlocked([&] { return take_chunks(build); });
        if (taken.ok()) continue;
        if (taken.error().kind != ErrorKind::OutOfMemory) return taken.error();
        build.refusal = taken.error();
      }
      if (build.places != 1) {
        build.places = 1;
        continue;
      }
      if (build.until == 0) build.until = now_ns() + settings_.wait / std::chrono::nanoseconds(1);
      if (!turn.take_now()) {
        build.hand.clear();
        if (turn.take(holding, build.until)) continue;
      }
      build.is_under_pressure = true;
      order_.memory_is_short();
      holding.unlock();
      flush_all();
      holding.lock();
      continue;
    }

    tried.add(ReclaimSteps::FreeChunks);
    const Result<bool> more = unlocked([&] { return take_under_pressure(build); });
    if (TRY(more)) continue;
    if (build.reach == ResidencyFilter::Far) {
      build.reach = ResidencyFilter::Both;
      continue;
    }
    if (turn.wait_for_others(holding, build.until)) continue;
    tried.add(ReclaimSteps::PendingWork);
    const std::vector<FreeTicket> frees = frees_to_follow(build);
    if (unlocked([&] { return follow(frees, build.stream); })) continue;
    if (!is_waiting_futile(build) && unlocked([&] { return wait_for_pending(build); })) continue;
    if (settings_.compactor != nullptr) tried.add(ReclaimSteps::LiveBlocks);
    if (unlocked([&] { return compact_for(build); })) continue;
    if (build.reach == ResidencyFilter::Near && store_.spills()) {
      tried.add(ReclaimSteps::Elsewhere);
      build.reach = further(build);
      if (build.reach == ResidencyFilter::Far) build.hand.clear();  // for others to use near
      continue;
    }
    const Size had = build.hand_bytes();
    build.hand.clear();  // available again
    return refuse(had);
  }
}

// Free memory on the device is used if it is a good part of the block. Otherwise the whole block
// lies far, and no chunk moves: unmapping a far chunk takes tens of milliseconds while kernels read
// far memory.
ResidencyFilter Arena::further(const Build& build) const {
  constexpr Size good_part = 4;
  const Size near = movable_bytes(ResidencyFilter::Near) + build.hand_bytes();
  return near < build.size / good_part ? ResidencyFilter::Far : ResidencyFilter::Both;
}

// Whether the device lacks memory for the block even counting memory with pending work, while there
// may be room elsewhere.
bool Arena::must_go_far(const Build& build) const {
  if (build.reach != ResidencyFilter::Near || !store_.spills()) return false;
  const arena::FreeRanges& free = layout_->free();
  const Size near = free.bytes() - free.far_bytes() + build.hand_bytes();
  return near < build.size;
}

// Even if the block must go partly far, a wait may pay off: it costs less than using much memory
// from afar.
bool Arena::is_waiting_futile(const Build& build) const {
  if (!must_go_far(build)) return false;
  constexpr Size much = 64 * MiB;
  const WholeChunks whole{mapping_};
  Size pending = 0;
  for (Range* range = layout_->free().by_age().oldest(); range != nullptr; range = range->newer) {
    if (arena::is_idle(*range, order_) || range->residency == Residency::Far) continue;
    pending += whole.of(*range).size;
  }
  return pending == 0 || pending < std::min(much, build.size / 4);
}

Result<Block*> Arena::try_to_build(Build& build) {
  if (has_ended_) return Error::invalid("allocate", "of a pool or context that has ended");
  const bool all = may_move(build);
  if (build.places == 1) spread_.settle();
  const arena::Patience patience = all ? arena::endless : arena::usual_patience;
  if (Block* const block = take_own(build.size, build.stream, patience, build.reach)) return block;
  if (Block* const block = take_ordered(build.size, build.stream, patience, build.reach)) {
    return block;
  }

  mend();
  const bool is_scarce = build.is_under_pressure && build.reach != ResidencyFilter::Far;
  const Size spare = is_scarce ? build.hand_bytes() + movable_bytes(build.reach) : unlimited;
  AllocationSpanSearch search{
      *layout_,
      mapping_,
      order_,
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

Result<Block*> Arena::build_at(const AllocationSpan& span, Build& build) {
  // The build has new chunks, got without pressure.
  const bool has_room = !build.is_under_pressure && !build.hand.empty();
  GapFill fill{span};
  Rearrangement change = rearrangement();
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
    Block& block = layout_->carve(*span.first, place_in(span.where, build), build.stream);
    block.is_behind_others = is_behind_others;
    note_mapped();
    return &block;
  }
  TRY(commit(change));
  build.hand = std::move(left);
  Block& block =
      layout_->carve(change.lowest_that_came(), place_in(span.where, build), build.stream);
  layout_->join_beside(block);
  if (build.places != 1) layout_->join_within(block, span.where);
  block.is_behind_others = is_behind_others;
  if (has_room) release_spilled();
  note_mapped();
  tell();
  return &block;
}

Stretch Arena::place_in(const Stretch& where, const Build& build) {
  if (settings_.spreads) spread_.note(build.size);
  return {where.offset + spread_.pick(build.places) * build.size, build.size};
}

bool Arena::holds_pending_of_others(const AllocationSpan& span, StreamId stream) const {
  return any_free_in(
      span, [&](const Range& range) { return order_.is_across_barrier(range.ticket, stream); });
}

void Arena::move_into(const AllocationSpan& span, ResidencyFilter reach, GapFill& fill,
                      Rearrangement& change) {
  const WholeChunks whole{mapping_};
  for (Range* range = layout_->free().by_age().oldest(); range != nullptr; range = range->newer) {
    if (fill.is_complete()) return;
    if (!arena::is_idle(*range, order_) || !arena::is_within(reach, *range)) continue;
    const Stretch chunks = whole.of(*range);
    for (Size end = chunks.end(); end > chunks.offset;) {
      const MappedChunk& chunk = whole.at(end - 1);
      end = chunk.offset;
      if (chunk.where().overlaps(span.where)) continue;
      if (const auto spot = fill.lay(chunk.chunk->size())) change.move(*spot, *range, chunk);
    }
  }
}

Result<void> Arena::commit(Rearrangement& change) {
  const Result<void> done = change.commit();
  note_mapped();
  moved_bytes_ += change.moved_bytes();
  moved_chunks_ += change.moved_count();
  return done;
}

// With Grow::Tight, moving comes before new memory, and both come before waiting.
bool Arena::may_move(const Build& build) const {
  if (build.reach == ResidencyFilter::Far) return false;
  return build.is_under_pressure || settings_.grow == Grow::Tight;
}

Size Arena::movable_bytes(ResidencyFilter reach) const {
  const WholeChunks whole{mapping_};
  Size bytes = 0;
  for (Range* range = layout_->free().by_age().oldest(); range != nullptr; range = range->newer) {
    if (!arena::is_idle(*range, order_) || !arena::is_within(reach, *range)) continue;
    bytes += whole.of(*range).size;
  }
  return bytes;
}

// The requesting stream can wait instead of this thread: for the frees of one sufficient place and
// for nothing else, since other work may have to run after its own.
std::vector<FreeTicket> Arena::frees_to_follow(const Build& build) const {
  if (build.stream == no_stream) return {};
  const auto may_be_part = [&](const Range& range) {
    return arena::is_within(build.reach, range) &&
           may_use(range, build.stream, order_, arena::Use::AfterFollowing);
  };
  const Range* best = nullptr;
  layout_->free().for_each_stream([&](StreamId, const arena::SizeIndex& index) {
    const Range* const fit = index.best_fit(build.size, arena::endless, may_be_part);
    if (fit != nullptr && (best == nullptr || fit->size() < best->size())) best = fit;
  });
  if (best != nullptr) return {best->ticket};
  AllocationSpanSearch search{*layout_,
                              mapping_,
                              order_,
                              {.size = build.size,
                               .stream = build.stream,
                               .effort = AllocationSpanSearch::Effort::All,
                               .spare = build.hand_bytes() + movable_bytes(build.reach),
                               .reach = build.reach,
                               .use = arena::Use::AfterFollowing}};
  const std::optional<AllocationSpan> span = search.find();
  std::vector<FreeTicket> frees;
  if (!span) return frees;
  any_free_in(*span, [&](const Range& range) {
    if (!may_use(range, build.stream, order_)) frees.push_back(range.ticket);
    return false;  // all of them
  });
  return frees;
}

// Returns whether the stream now waits for all of them.
bool Arena::follow(const std::vector<FreeTicket>& frees, StreamId stream) {
  if (frees.empty()) return false;
  for (const FreeTicket& freed : frees) {
    if (!order_.follow(freed, stream)) return false;
  }
  follows_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool Arena::wait_for_pending(const Build& build) {
  FreeTicket pending;
  {
    const Holding holding{lock_};
    const arena::FreeRanges& free = layout_->free();
    // If waiting for one at a time will not suffice, wait for all at once.
    const bool wants_all = must_go_far(build);
    for (Range* range = free.by_age().oldest(); range != nullptr; range = range->newer) {
      if (arena::is_idle(*range, order_)) continue;
      pending = range->ticket;
      if (!wants_all) break;
    }
    // Small ranges may be large enough once joined.
    if (pending.is_for_anyone()) {
      free.for_each_stream([&](StreamId, const arena::SizeIndex& index) {
        index.for_each([&](const Range& range) {
          if (!arena::is_idle(range, order_)) pending = range.ticket;
        });
      });
    }
    if (pending.is_for_anyone()) return false;
    ++waits_;
  }
  if (!order_.wait(pending, build.until)) return false;
  flush_all();
  return true;
}

// Whether the size exceeds everything that could become available even if all others released what
// they hold. Then nothing needs to be tried, and no other holder has to release anything.
bool Arena::is_hopeless(Size size) const {
  const ChunkPolicy::Supply has = supply();
  const Size mapped = physical_bytes();
  const Size near = mapped - std::min(mapped, mapping_.far_bytes());
  const Size others = has.held > near ? has.held - near : 0;
  const Size ours = mapped - std::min(mapped, layout_->block_bytes()) + cached_bytes();
  const Size elsewhere = store_.spill_room();
  return saturating_sum(has.room, ours, others, elsewhere) < size;
}

// The largest available piece is the largest free range, or all chunks that can be moved together.
Error Arena::out_of_memory(Size asked, Error refusal, Size chunks) const {
  refusal.kind = ErrorKind::OutOfMemory;
  refusal.doing = "allocate";
  refusal.asked = asked;
  refusal.available = std::max(layout_->free().for_anyone().largest(),
                               movable_bytes(ResidencyFilter::Near) + chunks);
  return refusal;
}

}  // namespace cuvmm
