// SPDX-License-Identifier: Apache-2.0
#include "alloc/windows/window_transfer.hpp"

#include <algorithm>

#include "alloc/windows/window_remap.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {

using State = WindowBlock::State;

constexpr const char* handing_over = "put chunks behind another block";

// How many blocks to examine for the one that a new block probably takes over from.
constexpr std::size_t blocks_looked_at = 256;

// Mapping more chunks than this costs more than it gains.
constexpr std::size_t cuts_at_most = 32;

Size sum_of(const std::vector<ChunkRef>& chunks) {
  Size bytes = 0;
  for (const ChunkRef& chunk : chunks) bytes += chunk->size();
  return bytes;
}

std::vector<ChunkRef> first_of(const WindowBlock::Whole& whole, std::size_t count) {
  const auto first = whole.chunks.begin();
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

bool may_take_part(const WindowBlock& block, Size granule) {
  if (block.state != State::Live || block.pinned() || block.whole == nullptr) return false;
  if (block.shared != nullptr && block.piece_behind != WindowBlock::Behind::Usable) return false;
  // A chunk with another reference is about to be exported.
  const auto& chunks = block.whole->chunks;
  return is_multiple(block.address(), granule) &&
         std::all_of(chunks.begin(), chunks.end(),
                     [](const ChunkRef& chunk) { return chunk.is_sole() && !chunk.exported(); });
}

bool may_give(const WindowBlock& block, Size granule) {
  return may_take_part(block, granule) && block.whole->deferred_bytes == 0;
}

// The ends of the chunks that lie wholly within the block's first `bytes` bytes.
std::vector<Size> ends_within(const WindowBlock& block, Size bytes) {
  std::vector<Size> ends;
  Size end = 0;
  for (const ChunkRef& chunk : block.whole->chunks) {
    end += chunk->size();
    if (end > bytes) break;
    ends.push_back(end);
  }
  return ends;
}

}  // namespace

// The ends of the chunks of the block that a new one of that size probably takes over from, if the
// chunks average at least `at_least` bytes.
std::vector<Size> WindowTransfer::likely_cuts(const Shape& shape, Size at_least) const {
  std::vector<Size> best;
  if (shape.granted < smallest_at_granule(table_.granule)) return best;
  const std::size_t most = std::min(table_.large.size(), blocks_looked_at);
  for (std::size_t i = 0; i < most; ++i) {
    const WindowBlock& block = *table_.large[table_.large.size() - 1 - i];
    if (block.granted() < smallest_at_granule(table_.granule) || !may_give(block, table_.granule))
      continue;
    std::vector<Size> ends = ends_within(block, shape.whole_bytes());
    if (!ends.empty() && (best.empty() || ends.back() > best.back())) best = std::move(ends);
  }
  // The chunks must be worth it: if the copy is made after all, the cuts only cost more to map.
  if (best.empty() || best.size() > cuts_at_most || best.back() < at_least * best.size()) return {};
  return best;
}

WindowTransfer::Movable WindowTransfer::plan_hand_over(const WindowBlock& from,
                                                       const WindowBlock& to, Size bytes,
                                                       Filler filler) const {
  if (!may_give(from, table_.granule) || !may_take_part(to, table_.granule)) return {};
  const Size whole = to.placed(table_.granule).whole_bytes();
  const std::vector<Size> ends = ends_within(from, std::min(bytes, whole));
  Movable best;
  Size reached = to.whole->deferred_bytes;
  std::size_t replaced = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    while (reached < ends[i]) reached += to.whole->chunks[replaced++]->size();
    if (reached > ends[i] && filler == Filler::None) continue;
    best = {.bytes = ends[i], .chunks = i + 1, .replaced = replaced, .filler = reached - ends[i]};
  }
  return best;
}

WindowTransfer::Movable WindowTransfer::movable(const WindowBlock& from, const WindowBlock& to,
                                                Size bytes) const {
  const Holding holding{table_.lock};
  return plan_hand_over(from, to, bytes, Filler::Allowed);
}

Size WindowTransfer::deferred_bytes(const WindowBlock& block) const {
  const Holding holding{table_.lock};
  return block.whole != nullptr ? block.whole->deferred_bytes : 0;
}

// Maps other chunks behind the block's first bytes, instead of its first `count` chunks; both end
// at the same offset. After an Error the old chunks are mapped again. But if the driver refuses
// that too, or if `if_refused` is Nothing, these bytes have no memory until back() succeeds.
Result<void> WindowTransfer::exchange_front(WindowBlock& block, std::size_t count,
                                            const std::vector<ChunkRef>& after,
                                            IfRefused if_refused) {
  WindowBlock::Whole& whole = *block.whole;
  const std::vector<ChunkRef> before = first_of(whole, count);
  WindowRemap remap{table_};
  std::size_t index = 0;
  const auto add = [&](CUdeviceptr address, const std::vector<ChunkRef>& chunks, bool stays) {
    for (const ChunkRef& chunk : chunks) {
      const Size size = chunk->size();
      remap.add_own(block, index++, address, stays ? chunk : ChunkRef{});
      address += size;
    }
  };
  const CUdeviceptr begin = block.address() + whole.deferred_bytes;
  add(begin + sum_of(before) - sum_of(after), after, true);
  add(begin, before, false);
  // One entry for each chunk, old and new. The entries of chunks that are not mapped are empty.
  whole.chunks.insert(whole.chunks.begin(), after.size(), ChunkRef{});
  const Result<void> done = remap.commit();
  if (!done.ok() && (remap.is_torn() || if_refused == IfRefused::Nothing)) remap.unmap_all();
  std::erase_if(whole.chunks, [](const ChunkRef& chunk) { return !chunk; });
  const Size missing = block.placed(table_.granule).whole_bytes() - whole.bytes;
  table_.deferred_bytes += missing - whole.deferred_bytes;
  whole.deferred_bytes = missing;
  return done;
}

Result<WindowTransfer::Movable> WindowTransfer::transfer(
    WindowBlock& from, WindowBlock& to, Size bytes,
    const std::function<Result<void>(Size)>& copy_rest) {
  const auto plan_with = [&](Filler filler) {
    const Holding holding{table_.lock};
    return plan_hand_over(from, to, bytes, filler);
  };
  Movable plan = plan_with(Filler::Allowed);
  ChunkRef filler;
  if (plan.filler != 0) {
    Result<ChunkRef> taken = store_.take(settings_.kind(plan.filler), &windows_);
    if (taken.ok()) {
      filler = std::move(taken).value();
    } else {
      plan = plan_with(Filler::None);
    }
  }
  if (plan.bytes == 0) return Error::invalid(handing_over, "no whole chunk of it can be moved");

  std::vector<ChunkRef> before;
  {
    const Holding holding{table_.lock};
    if (!(plan_hand_over(from, to, bytes, Filler::Allowed) == plan) &&
        !(plan_hand_over(from, to, bytes, Filler::None) == plan)) {
      return Error::invalid(handing_over, "a block has changed");
    }
    before = first_of(*to.whole, plan.replaced);
    std::vector<ChunkRef> chunks = first_of(*from.whole, plan.chunks);
    if (plan.filler != 0) chunks.push_back(filler);
    TRY(exchange_front(to, plan.replaced, chunks, IfRefused::Restore));
  }
  if (plan.bytes < bytes) {
    Result<void> copied = copy_rest(plan.bytes);
    if (!copied.ok()) copied = copy_rest(plan.bytes);
    if (!copied.ok()) {
      const Holding holding{table_.lock};
      const std::size_t moved = plan.chunks + (plan.filler != 0 ? 1 : 0);
      (void)exchange_front(to, moved, before, IfRefused::Nothing);
      return copied.error();
    }
  }
  const Holding holding{table_.lock};
  end_emptied(from);
  return plan;
}

// Ends the block and its window. The chunks that were moved lie behind another block now.
void WindowTransfer::end_emptied(WindowBlock& block) {
  ++table_.changes;
  --table_.live_blocks;
  table_.live_bytes -= block.granted();
  block.set_ticket({});
  if (block.shared != nullptr) table_.shared.end_use(*block.shared);
  table_.unmap_block(block);
}

// One chunk of that size if possible: from the store, at first as it is and then after releasing
// cached windows, or spilled. Otherwise many chunks of one granule.
Result<std::vector<ChunkRef>> WindowTransfer::take_backing(Size wanted) {
  const Result<ChunkRef> one = store_.take(settings_.kind(wanted), &windows_);
  if (one.ok()) return std::vector{*one};
  if (one.error().kind == ErrorKind::OutOfMemory) {
    const Holding holding{table_.lock};
    compactor_.tidy();
    (void)table_.give_up_whole_chunks(wanted);
  }
  const Result<ChunkRef> given_up = store_.take(settings_.kind(wanted), &windows_);
  if (given_up.ok()) return std::vector{*given_up};
  if (store_.spills()) {
    const Result<ChunkRef> spilled = store_.take_spilled(wanted, settings_.exportable);
    if (spilled.ok()) return std::vector{*spilled};
  }
  return store_.take_many(settings_.kind(table_.granule), wanted / table_.granule, &windows_);
}

Result<void> WindowTransfer::back(WindowBlock& block) {
  const Size wanted = deferred_bytes(block);
  if (wanted == 0) return {};
  retry_releases();  // something may still be mapped there
  const std::vector<ChunkRef> chunks = TRY(take_backing(wanted));
  const Holding holding{table_.lock};
  return exchange_front(block, 0, chunks, IfRefused::Restore);
}

}  // namespace cuvmm
