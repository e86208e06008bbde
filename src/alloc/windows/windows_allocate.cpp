// SPDX-License-Identifier: Apache-2.0
// Allocation: a cached window, or else a new one over vacant memory or chunks from the store.
#include "alloc/windows/window_request.hpp"

namespace cuvmm {
namespace {

constexpr const char* doing = "allocate blocking memory";

}  // namespace

Result<WindowBlock*> Windows::allocate(Size asked, const GrowHint& grow_hint) {
  if (asked == 0) return Error::invalid(doing, "of no bytes");
  const Size granted = round_up(asked, window_step);
  Request request{.shape = {granted, granule_}};
  {
    Holding holding{lock_};
    if (grow_hint.kind != GrowHint::Kind::None) {
      request.cuts = likely_cuts(request.shape, grow_hint.granules_at_least * granule_);
    }
    if (grow_hint.kind == GrowHint::Kind::Promise && !request.cuts.empty()) {
      request.deferred_bytes = request.cuts.back();
    }
    const Size most = saturating_sum(settings_.device_memory, whole_far_bytes_, shared_.far_bytes(),
                                     store_.spill_room());
    const Size live = counters_.live_bytes - all_deferred_bytes_;
    const Size not_live = most - std::min(most, live);
    if (granted == 0 || granted - request.deferred_bytes > not_live) {
      // Hopeless, however much is released. Programs find the limit by halving their request.
      holding.unlock();
      return Error{.kind = ErrorKind::OutOfMemory,
                   .doing = doing,
                   .subject = "more than the device has",
                   .asked = asked,
                   .available = obtainable_bytes()};
    }
    if (WindowBlock* const cached = take_cached(granted)) return cached;
  }
  const Result<WindowBlock*> placed = place(request);
  if (placed.ok() || !is_for_want_of_room(placed.error())) return placed;
  return place_under_pressure(request, placed.error());
}

Result<WindowBlock*> Windows::place(Request& request) {
  for (;;) {
    {
      const Holding holding{lock_};
      if (WindowBlock* const block = TRY(try_place(request))) {
        tell_of_change();
        return block;
      }
    }
    TRY(take_missing(request));
  }
}

// Returns a block, or nullptr if the request still lacks memory.
Result<WindowBlock*> Windows::try_place(Request& request) {
  if (WindowBlock* const cached = take_cached(request.shape.granted)) return cached;
  std::optional<SharedChunks::VacantSlot> place;
  if (request.shape.has_piece()) {
    place = shared_.find(request.shape.format(), request.look);
    if (!place && request.reach == Residency::Far) {
      place = shared_.find(request.shape.format(Residency::Far), request.look);
    }
    request.needs_spare = !place && !request.spare;
  }
  if (request.needs_spare || request.missing_whole() != 0) return nullptr;
  if (place || !request.shape.has_piece()) return map_block(request, place);
  const Residency spare_residency = cuvmm::residency(request.spare->location(), settings_.device);
  SharedChunk& fresh = shared_.add(request.spare, request.shape.format(spare_residency));
  Result<WindowBlock*> block = map_block(request, shared_.first_slot(fresh));
  // A failure leaves the new chunk without a piece.
  if (!block.ok() && fresh.id != 0) remove_if_vacant(fresh);
  return block;
}

// Takes few and large chunks, because mapping a chunk costs the same whatever its size.
Result<void> Windows::take_missing(Request& request) {
  if (request.reach == Residency::Far) return take_spilled(request);
  while (request.missing_whole() != 0) {
    Result<ChunkRef> one = store_.take(kind(request.next_whole()), this);
    if (!one.ok()) {
      if (one.error().kind != ErrorKind::OutOfMemory || request.look == Look::Lightly ||
          request.missing_whole() > obtainable_bytes()) {
        return one.error();
      }
      break;
    }
    request.add_whole(std::move(one).value());
  }
  // Not available in one piece: take single granules, so that it is known what is missing.
  while (request.missing_whole() != 0) {
    request.add_whole(TRY(store_.take(kind(granule_), this)));
  }
  if (request.needs_spare && !request.spare) {
    request.spare = TRY(store_.take(kind(granule_), this));
  }
  return {};
}

// Takes what the device still has, and the rest from elsewhere in few and large chunks.
Result<void> Windows::take_spilled(Request& request) {
  const auto take = [this](Size size) -> Result<ChunkRef> {
    Result<ChunkRef> near = store_.take(kind(granule_), this);
    if (near.ok() || near.error().kind != ErrorKind::OutOfMemory) return near;
    return store_.take_spilled(size, settings_.exportable);
  };
  for (Size size = request.missing_whole(); request.missing_whole() != 0;) {
    size = std::min(size, request.next_whole());
    Result<ChunkRef> taken = take(size);
    if (taken.ok()) {
      request.add_whole(std::move(taken).value());
    } else if (taken.error().kind != ErrorKind::OutOfMemory || size == granule_) {
      return taken.error();
    } else {
      size = round_up(size / 2, granule_);
    }
  }
  if (request.needs_spare && !request.spare) request.spare = TRY(take(granule_));
  return {};
}

// An upper bound on what can become available, whatever we release and move.
Size Windows::obtainable_bytes() const {
  const Location here = Location::device(settings_.device);
  const Budget* const budget = store_.budget(here);
  Size free = budget != nullptr ? budget->available() : 0;
  std::size_t free_on_device = 0;
  std::size_t all = 0;
  if (driver_.cuMemGetInfo(&free_on_device, &all) == CUDA_SUCCESS) {
    free = std::min<Size>(free, free_on_device);
  }
  free = std::min(free, settings_.device_memory);
  const Holding holding{lock_};
  const Size held = shared_.physical_bytes() + whole_bytes_;
  return free + store_.counters(here).physical_free + held + all_deferred_bytes_ -
         counters_.live_bytes;
}

WindowBlock* Windows::take_cached(Size granted) {
  for (;;) {
    WindowBlock* block = cached_.find_ready(granted);
    if (block != nullptr) {
      cached_.remove(*block);
      if (is_reusable(*block)) {
        if (block->shared != nullptr) shared_.use(*block->shared);
        hand_out(*block);
        return block;
      }
      unmap_block(*block);
      continue;
    }
    block = cached_.find_done(granted, order_);
    if (block == nullptr) return nullptr;
    cached_.remove(*block);
    keep(*block);
  }
}

Result<WindowBlock*> Windows::map_block(const Request& request,
                                        const std::optional<SharedChunks::VacantSlot>& place) {
  const Shape& shape = request.shape;
  const CUdeviceptr window = TRY(addresses_.take(shape.window_bytes()));
  WindowBlock& block = records_.make();
  block.place(window + (place ? shape.begins_at(place->where) : 0), shape.granted);
  block.state = WindowBlock::State::Live;
  block.piece_behind = WindowBlock::Behind::Nothing;
  block.shared = nullptr;
  if (place) {
    block.shared = place->chunk;
    shared_.put(*place->chunk, block);
  }
  if (shape.whole_bytes() != 0) {
    add_large(block);
    block.whole->deferred_bytes = request.deferred_bytes;
    all_deferred_bytes_ += request.deferred_bytes;
  }
  if (const Result<void> mapped = map_all(block, request.whole); !mapped.ok()) {
    if (place) shared_.end_use(*place->chunk);
    all_deferred_bytes_ -= request.deferred_bytes;
    unmap_block(block);
    return mapped.error();
  }
  hand_out(block);
  return &block;
}

Result<void> Windows::map_all(WindowBlock& block, const std::vector<ChunkRef>& whole) {
  const PlacedBlock placed = block.placed(granule_);
  for (const ChunkRef& chunk : whole) {
    TRY(maps_.map(placed.whole() + block.whole->deferred_bytes + block.whole->bytes, chunk));
    block.whole->chunks.push_back(chunk);
    add_bytes_of(*block.whole, chunk);
  }
  if (block.shared != nullptr) {
    TRY(maps_.map(placed.piece_window(), block.shared->chunk));
    block.piece_behind = WindowBlock::Behind::Mapped;
  }
  const Size deferred_bytes = block.whole != nullptr ? block.whole->deferred_bytes : 0;
  if (const Size bytes = placed.window_bytes() - deferred_bytes; bytes != 0) {
    TRY(maps_.allow(placed.window() + deferred_bytes, bytes));
  }
  if (block.shared != nullptr) block.piece_behind = WindowBlock::Behind::Usable;
  return {};
}

}  // namespace cuvmm
