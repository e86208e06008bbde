// SPDX-License-Identifier: Apache-2.0
// Finding a free range that a stream may use.
#include <algorithm>

#include "alloc/arena/arena.hpp"

namespace cuvmm {

using arena::Patience;
using arena::Range;
using arena::ResidencyFilter;
using arena::SizeIndex;

Block* Arena::take_own(Size size, StreamId stream, Patience patience, ResidencyFilter reach) {
  const arena::FreeRanges& free = layout_->free();
  const auto in_reach = [reach](const Range& range) { return arena::is_within(reach, range); };
  Range* best = free.best_fit(stream, size, patience, in_reach);
  if (stream != no_stream) {
    // Between equal ranges prefer the stream's own: the others can serve any stream.
    Range* const anyones = free.best_fit(no_stream, size, patience, in_reach);
    if (anyones != nullptr && (best == nullptr || anyones->size() < best->size())) best = anyones;
  }
  return carve(best, size, stream);
}

Block* Arena::carve(Range* range, Size size, StreamId stream) {
  if (range == nullptr) return nullptr;
  const bool is_far = range->residency == Residency::Far;
  Size offset = 0;
  if (settings_.spreads) {
    if (range->size() == size && spread_.leaves_last(size)) return nullptr;
    spread_.note(size);
    offset = spread_.pick(std::min(spread_.count(size), range->size() / size)) * size;
  }
  Block& block = offset == 0 ? layout_->carve(*range, size, stream)
                             : layout_->carve(*range, {range->begin() + offset, size}, stream);
  if (is_far) far_free_.store(layout_->free().far_bytes(), std::memory_order_relaxed);
  return &block;
}

Block* Arena::take_ordered(Size size, StreamId stream, Patience patience, ResidencyFilter reach) {
  Range* best = nullptr;
  layout_->free().for_each_stream([&](StreamId owner, const SizeIndex& index) {
    if (owner == stream) return;
    Range* const fit = index.best_fit(size, patience, [&](const Range& range) {
      return arena::is_within(reach, range) && may_use(range, stream, order_);
    });
    if (fit != nullptr && (best == nullptr || fit->size() < best->size())) best = fit;
  });
  if (best == nullptr) return nullptr;
  const bool is_pending = order_.is_across_barrier(best->ticket, stream);
  Block* const block = carve(best, size, stream);
  if (block != nullptr) block->is_behind_others = is_pending;
  return block;
}

void Arena::look_at_pending(Taker taker) {
  layout_->free().for_each_stream([&](StreamId owner, const SizeIndex&) {
    taker == Taker::Others ? order_.poll_for_eviction(owner) : order_.look(owner);
  });
  layout_->settle(order_);
}

Result<Block*> Arena::search_further(Size size, StreamId stream) {
  {
    const Holding holding{lock_};
    if (Block* const block =
            take_ordered(size, stream, arena::usual_patience, ResidencyFilter::Near))
      return block;
  }
  flush_usable(stream);
  if (stream != no_stream) order_.mark_own(stream);
  arena::Build wanted{.size = size, .stream = stream};
  if (settings_.spreads && settings_.grow == Grow::Loose) {
    const Holding holding{lock_};
    wanted.places = spread_.count(size);
  }
  // Not from the last memory, which others may need.
  if (wanted.places != 1 && wanted.place_bytes() > supply().room / 4) wanted.places = 1;
  return build(wanted);
}

}  // namespace cuvmm
