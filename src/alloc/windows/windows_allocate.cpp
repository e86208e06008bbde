// SPDX-License-Identifier: Apache-2.0
// Allocation: a cached window, or else a new one over vacant memory or chunks from the store.
#include "alloc/windows/window_request.hpp"
#include "alloc/windows/windows.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {
namespace {

constexpr const char* doing = "allocate blocking memory";

}  // namespace

Result<WindowBlock*> Windows::allocate(Size asked, const GrowHint& grow_hint,
                                       MemoryPressure& pressure) {
  if (asked == 0) return Error::invalid(doing, "of no bytes");
  const Size granted = round_up(asked, step_of_block(asked, table_.granule));
  WindowRequest request{.shape = {granted, table_.granule}};
  {
    Holding holding{table_.lock};
    if (grow_hint.kind != GrowHint::Kind::None) {
      request.cuts =
          transfer_.likely_cuts(request.shape, grow_hint.granules_at_least * table_.granule);
    }
    if (grow_hint.kind == GrowHint::Kind::Promise && !request.cuts.empty()) {
      request.deferred_bytes = request.cuts.back();
    }
    const Size most = saturating_sum(settings_.device_memory, table_.whole_far_bytes,
                                     table_.shared.far_bytes(), store_.spill_room());
    const Size live = table_.live_bytes - table_.deferred_bytes;
    const Size not_live = most - std::min(most, live);
    if (granted == 0 || granted - request.deferred_bytes > not_live) {
      // Hopeless, however much is released. Programs find the limit by halving their request.
      holding.unlock();
      return Error{.kind = ErrorKind::OutOfMemory,
                   .doing = doing,
                   .subject = "nothing was tried: live memory leaves too little",
                   .asked = asked,
                   .available = obtainable_bytes()};
    }
    if (WindowBlock* const cached = table_.take_cached(granted)) return cached;
  }
  request.in_hand.emplace(store_.in_hand());
  const Result<WindowBlock*> placed = place(request);
  if (placed.ok() || !is_for_want_of_room(placed.error())) return placed;
  return place_under_pressure(request, pressure, placed.error());
}

Result<WindowBlock*> Windows::place(WindowRequest& request) {
  for (;;) {
    {
      const Holding holding{table_.lock};
      if (WindowBlock* const block = TRY(try_place(request))) {
        tell_of_change();
        return block;
      }
    }
    TRY(take_missing(request));
  }
}

// Returns a block, or nullptr if the request still lacks memory.
Result<WindowBlock*> Windows::try_place(WindowRequest& request) {
  if (WindowBlock* const cached = table_.take_cached(request.shape.granted)) return cached;
  std::optional<SharedChunks::VacantSlot> place;
  if (request.shape.has_piece()) {
    place = table_.shared.find(request.shape.format(), request.look);
    if (!place && request.reach == Residency::Far) {
      place = table_.shared.find(request.shape.format(Residency::Far), request.look);
    }
    request.needs_spare = !place && !request.spare;
  }
  if (request.needs_spare || request.missing_whole() != 0) return nullptr;
  if (place || !request.shape.has_piece()) return table_.map_block(request, place);
  const Residency spare_residency = cuvmm::residency(request.spare->location(), table_.device);
  SharedChunk& fresh = table_.shared.add(request.spare, request.shape.format(spare_residency));
  Result<WindowBlock*> block = table_.map_block(request, table_.shared.first_slot(fresh));
  // A failure leaves the new chunk without a piece.
  if (!block.ok() && fresh.id != 0) table_.remove_if_vacant(fresh);
  return block;
}

// Takes few and large chunks, because mapping a chunk costs the same whatever its size.
Result<void> Windows::take_missing(WindowRequest& request) {
  if (request.reach == Residency::Far) return take_spilled(request);
  while (request.missing_whole() != 0) {
    Result<ChunkRef> one = store_.take(settings_.kind(request.next_whole()), this);
    if (!one.ok()) {
      if (one.error().kind != ErrorKind::OutOfMemory || request.look == Look::Lightly ||
          request.missing_whole() > obtainable_bytes()) {
        return one.error();
      }
      break;
    }
    request.add_whole(std::move(one).value());
  }
  // Not available in one piece: take single granules, so that the request knows how many are
  // missing.
  while (request.missing_whole() != 0) {
    request.add_whole(TRY(store_.take(settings_.kind(table_.granule), this)));
  }
  if (request.needs_spare && !request.spare) {
    request.spare = TRY(store_.take(settings_.kind(table_.granule), this));
  }
  return {};
}

// Takes what the device still has, and the rest from elsewhere in few and large chunks.
Result<void> Windows::take_spilled(WindowRequest& request) {
  const auto take = [this](Size size) -> Result<ChunkRef> {
    Result<ChunkRef> near = store_.take(settings_.kind(table_.granule), this);
    if (near.ok() || near.error().kind != ErrorKind::OutOfMemory) return near;
    return store_.take_spilled(size, settings_.exportable);
  };
  for (Size size = request.missing_whole(); request.missing_whole() != 0;) {
    size = std::min(size, request.next_whole());
    Result<ChunkRef> taken = take(size);
    if (taken.ok()) {
      request.add_whole(std::move(taken).value());
    } else if (taken.error().kind != ErrorKind::OutOfMemory || size == table_.granule) {
      return taken.error();
    } else {
      size = round_up(size / 2, table_.granule);
    }
  }
  if (request.needs_spare && !request.spare) request.spare = TRY(take(table_.granule));
  return {};
}

// An upper bound on what can become available, whatever we release and move.
Size Windows::obtainable_bytes() const {
  const Location here = Location::device(table_.device);
  const Budget* const budget = store_.budget(here);
  Size free = budget != nullptr ? budget->available() : 0;
  free = std::min({free, free_memory(table_.driver).value_or(free), settings_.device_memory});
  const Holding holding{table_.lock};
  return free + store_.counters(here).physical_free + table_.held() + table_.deferred_bytes -
         table_.live_bytes;
}

}  // namespace cuvmm
