// SPDX-License-Identifier: Apache-2.0
#include "alloc/windows/window_table.hpp"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "alloc/windows/window_remap.hpp"
#include "alloc/windows/window_request.hpp"

namespace cuvmm {

using State = WindowBlock::State;
using Behind = WindowBlock::Behind;

namespace {

Size most_addresses(const WindowSettings& settings) {
  if (settings.reserve_most != 0) return round_down(settings.reserve_most, settings.granule);
  return addresses_of_windows(settings.device_memory, settings.granule);
}

}  // namespace

WindowTable::WindowTable(const Driver& calls, StreamOrder& streams, const WindowSettings& settings)
    : driver(calls),
      order(streams),
      device(settings.device),
      granule(settings.granule),
      maps(calls, settings.device, settings.access),
      addresses(calls, {settings.granule, settings.reserve_step, most_addresses(settings)}),
      shared(settings.granule, settings.seed) {}

void WindowTable::hand_out(WindowBlock& block) {
  block.state = State::Live;
  block.drop_pin(0xFF);
  ++live_blocks;
  live_bytes += block.granted();
}

void WindowTable::end_life(WindowBlock& block, const FreeTicket& ticket) {
  if (block.state == State::Unused) return;  // it ended with its context
  ++changes;
  --live_blocks;
  live_bytes -= block.granted();
  if (block.whole != nullptr) deferred_bytes -= block.whole->deferred_bytes;
  if (block.pinned() && block.shared != nullptr) {
    --block.shared->pinned;
    shared.refile(*block.shared);
  }
  block.set_ticket(ticket);
  if (block.state == State::Moving) {
    block.state = State::Released;
    return;
  }
  if (ticket.is_for_anyone() || order.is_done(ticket)) return keep(block);
  cached.add_pending(block);
}

void WindowTable::keep(WindowBlock& block) {
  if (block.shared != nullptr) shared.end_use(*block.shared);
  if (is_reusable(block)) return cached.add_ready(block);
  unmap_block(block);
}

bool WindowTable::is_reusable(const WindowBlock& block) const {
  if (block.whole != nullptr && (block.pins() & held_by_others) != 0) return false;
  if (block.whole != nullptr && block.whole->deferred_bytes != 0) return false;
  // The next block may find room on the device.
  if (residency(block) == Residency::Far) return false;
  if (block.shared == nullptr) return true;
  return block.shared->takes_blocks() && block.piece_behind == Behind::Usable;
}

Residency WindowTable::residency(const WindowBlock& block) {
  const bool whole_is_far = block.whole != nullptr && block.whole->far_bytes != 0;
  const bool piece_is_far = block.shared != nullptr && block.shared->residency() == Residency::Far;
  return whole_is_far || piece_is_far ? Residency::Far : Residency::Near;
}

Size WindowTable::far_bytes_of(const ChunkRef& chunk) const {
  return cuvmm::residency(chunk->location(), device) == Residency::Far ? chunk->size() : 0;
}

void WindowTable::add_bytes_of(WindowBlock::Whole& whole, const ChunkRef& chunk) {
  whole.bytes += chunk->size();
  whole_bytes += chunk->size();
  whole.far_bytes += far_bytes_of(chunk);
  whole_far_bytes += far_bytes_of(chunk);
}

void WindowTable::take_bytes_of(WindowBlock::Whole& whole, const ChunkRef& chunk) {
  whole.bytes -= chunk->size();
  whole_bytes -= chunk->size();
  whole.far_bytes -= far_bytes_of(chunk);
  whole_far_bytes -= far_bytes_of(chunk);
}

void WindowTable::give_up(WindowBlock& ready) {
  cached.remove(ready);
  unmap_block(ready);
}

void WindowTable::unmap_block(WindowBlock& block) {
  if (!adrift.empty()) std::erase(adrift, &block);
  if (!unmap_all(block)) {
    block.state = State::Leaving;
    leaving.push_back(block);
    return;
  }
  const PlacedBlock placed = block.placed(granule);
  addresses.give(placed.window(), placed.window_bytes());
  if (block.whole != nullptr) remove_large(block);
  if (SharedChunk* const chunk = std::exchange(block.shared, nullptr)) {
    shared.take_out(*chunk, block);
    remove_if_vacant(*chunk);
  }
  block.state = State::Unused;
  block.unplace();
  records.give_back(block);
}

// Unmaps from the back, so that the chunks that remain after a refusal are the first ones.
bool WindowTable::unmap_all(WindowBlock& block) {
  const PlacedBlock placed = block.placed(granule);
  if (block.piece_behind != Behind::Nothing) {
    if (block.shared->copies != 0) return false;
    if (!unmap_one(placed.piece_window(), block.shared->chunk)) return false;
    block.piece_behind = Behind::Nothing;
  }
  while (block.whole != nullptr && !block.whole->chunks.empty()) {
    const ChunkRef& last = block.whole->chunks.back();
    const Size size = last->size();
    const CUdeviceptr end = placed.whole() + block.whole->deferred_bytes + block.whole->bytes;
    if (!unmap_one(end - size, last)) return false;
    take_bytes_of(*block.whole, last);
    block.whole->chunks.pop_back();
  }
  return true;
}

// Tries twice before it reports a refusal.
bool WindowTable::unmap_one(CUdeviceptr address, const ChunkRef& chunk) {
  if (maps.unmap(address, chunk).ok()) return true;
  const Result<void> again = maps.unmap(address, chunk);
  if (!again.ok()) unmap_refusal = again.error();
  return again.ok();
}

void WindowTable::remove_if_vacant(SharedChunk& chunk) {
  if (chunk.pieces.empty() && chunk.copies == 0) shared.remove(chunk);
}

void WindowTable::add_large(WindowBlock& block) {
  block.whole = std::make_unique<WindowBlock::Whole>();
  block.whole->place = large.size();
  large.push_back(&block);
}

void WindowTable::remove_large(WindowBlock& block) {
  WindowBlock* const moved = large.back();
  large[block.whole->place] = moved;
  moved->whole->place = block.whole->place;
  large.pop_back();
  block.whole.reset();
}

bool WindowTable::give_up_pieces(SharedChunk& idle) {
  const SharedChunk::Id id = idle.id;
  for (WindowBlock* piece : idle.pieces.copy()) {
    if (piece->state == State::Ready) give_up(*piece);
  }
  return SharedChunks::if_still(&idle, id) == nullptr;
}

Size WindowTable::give_up_whole_chunks(Size wanted) {
  const Size before = held();
  give_up_shared(wanted, std::numeric_limits<int>::max());
  const Size shared_bytes = before - held();
  if (shared_bytes < wanted) give_up_large(wanted - shared_bytes);
  return before - held();
}

Size WindowTable::give_up_cheap_chunks(Size wanted) {
  constexpr int most_shared = 2;
  const Size before = held();
  give_up_large(wanted);
  const Size of_large_ones = before - held();
  if (of_large_ones < wanted) give_up_shared(wanted - of_large_ones, most_shared);
  return before - held();
}

void WindowTable::give_up_large(Size wanted) {
  const Size before = held();
  while (WindowBlock* const oldest = cached.oldest_large()) {
    if (before - held() >= wanted) break;
    give_up(*oldest);
  }
}

void WindowTable::give_up_shared(Size wanted, int most) {
  const Size before = held();
  SharedChunk* idle = shared.oldest_idle();
  for (int count = 0; idle != nullptr && count < most && before - held() < wanted; ++count) {
    SharedChunk* const next = SharedChunks::idle_after(*idle);
    give_up_pieces(*idle);
    idle = next;
  }
}

std::size_t WindowTable::settle_pending() {
  std::size_t settled = 0;
  WindowBlock* block = cached.oldest_pending();
  while (block != nullptr) {
    WindowBlock* const next = CachedWindows::pending_after(*block);
    if (order.is_done(block->ticket())) {
      cached.remove(*block);
      keep(*block);
      ++settled;
    }
    block = next;
  }
  return settled;
}

// Finds out how far the device has come with freed blocks. If no stream is used again, nothing else
// does.
void WindowTable::look_at_pending() {
  std::unordered_set<StreamId> streams;
  for (const WindowBlock* block = cached.oldest_pending(); block != nullptr;
       block = CachedWindows::pending_after(*block)) {
    if (streams.insert(block->freed_on).second) order.look(block->freed_on);
  }
}

void WindowTable::tidy() {
  look_at_pending();
  settle_pending();
  if (!adrift.empty()) retry_refused();
  for (std::size_t left = leaving.count(); left > 0; --left) unmap_block(*leaving.pop_front());
}

void WindowTable::retry_refused() {
  std::erase_if(adrift, [this](WindowBlock* block) {
    WindowRemap remap{*this};
    remap.add_piece(*block, block->shared->chunk);
    return remap.commit().ok();
  });
}

WindowBlock* WindowTable::take_cached(Size granted) {
  for (;;) {
    WindowBlock* block = cached.find_ready(granted);
    if (block != nullptr) {
      cached.remove(*block);
      if (is_reusable(*block)) {
        if (block->shared != nullptr) shared.use(*block->shared);
        hand_out(*block);
        return block;
      }
      unmap_block(*block);
      continue;
    }
    block = cached.find_done(granted, order);
    if (block == nullptr) return nullptr;
    cached.remove(*block);
    keep(*block);
  }
}

Result<WindowBlock*> WindowTable::map_block(const WindowRequest& request,
                                            const std::optional<SharedChunks::VacantSlot>& place) {
  const Shape& shape = request.shape;
  const CUdeviceptr window = TRY(addresses.take(shape.window_bytes()));
  WindowBlock& block = records.make();
  block.place(window + (place ? shape.begins_at(place->where) : 0), shape.granted);
  block.state = WindowBlock::State::Live;
  block.piece_behind = WindowBlock::Behind::Nothing;
  block.shared = nullptr;
  if (place) {
    block.shared = place->chunk;
    shared.put(*place->chunk, block);
  }
  if (shape.whole_bytes() != 0) {
    add_large(block);
    block.whole->deferred_bytes = request.deferred_bytes;
    deferred_bytes += request.deferred_bytes;
  }
  if (const Result<void> mapped = map_all(block, request.whole); !mapped.ok()) {
    if (place) shared.end_use(*place->chunk);
    deferred_bytes -= request.deferred_bytes;
    unmap_block(block);
    return mapped.error();
  }
  hand_out(block);
  return &block;
}

Result<void> WindowTable::map_all(WindowBlock& block, const std::vector<ChunkRef>& whole) {
  const PlacedBlock placed = block.placed(granule);
  for (const ChunkRef& chunk : whole) {
    TRY(maps.map(placed.whole() + block.whole->deferred_bytes + block.whole->bytes, chunk));
    block.whole->chunks.push_back(chunk);
    add_bytes_of(*block.whole, chunk);
  }
  if (block.shared != nullptr) {
    TRY(maps.map(placed.piece_window(), block.shared->chunk));
    block.piece_behind = WindowBlock::Behind::Mapped;
  }
  const Size skipped = block.whole != nullptr ? block.whole->deferred_bytes : 0;
  if (const Size bytes = placed.window_bytes() - skipped; bytes != 0) {
    TRY(maps.allow(placed.window() + skipped, bytes));
  }
  if (block.shared != nullptr) block.piece_behind = WindowBlock::Behind::Usable;
  return {};
}

std::vector<MappedRun> WindowTable::all_mapped() const {
  std::vector<MappedRun> runs;
  for_each_block([&](const WindowBlock& block) {
    const PlacedBlock placed = block.placed(granule);
    if (block.piece_behind != WindowBlock::Behind::Nothing) {
      runs.push_back({placed.piece_window(), granule});
    }
    if (block.whole != nullptr && block.whole->bytes != 0) {
      runs.push_back({placed.whole() + block.whole->deferred_bytes, block.whole->bytes});
    }
  });
  std::sort(runs.begin(), runs.end(),
            [](const MappedRun& a, const MappedRun& b) { return a.address < b.address; });
  std::vector<MappedRun> joined;
  for (const MappedRun& run : runs) {
    if (!joined.empty() && joined.back().address + joined.back().bytes == run.address &&
        addresses.in_one_reservation(joined.back().address, joined.back().bytes + run.bytes)) {
      joined.back().bytes += run.bytes;
    } else {
      joined.push_back(run);
    }
  }
  return joined;
}

void WindowTable::release_all() {
  std::vector<WindowBlock*> blocks;
  for_each_block([&](WindowBlock& block) { blocks.push_back(&block); });
  for (WindowBlock* block : blocks) {
    const PlacedBlock placed = block->placed(granule);
    if (block->piece_behind != Behind::Nothing) {
      maps.unmap_or_defer(placed.piece_window(), block->shared->chunk);
    }
    if (block->whole != nullptr) {
      CUdeviceptr address = placed.whole() + block->whole->deferred_bytes;
      for (const ChunkRef& chunk : block->whole->chunks) {
        maps.unmap_or_defer(address, chunk);
        address += chunk->size();
      }
    }
    block->whole.reset();
    block->shared = nullptr;
    block->piece_behind = Behind::Nothing;
    block->state = State::Unused;
    block->unplace();
    records.give_back(*block);
  }
  maps.forget_all();
  cached = {};
  leaving = {};
  adrift.clear();
  large.clear();
  shared.clear();
  addresses.clear();
  whole_bytes = whole_far_bytes = 0;
  deferred_bytes = 0;
  live_blocks = 0;
  live_bytes = 0;
}

}  // namespace cuvmm
