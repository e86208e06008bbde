// SPDX-License-Identifier: Apache-2.0
// Freed blocks: keeping them mapped for the next block of their size, and releasing them.
#include <unordered_set>

#include "alloc/windows/window_batch.hpp"
#include "alloc/windows/window_remap.hpp"

namespace cuvmm {

using State = WindowBlock::State;
using Behind = WindowBlock::Behind;

void Windows::hand_out(WindowBlock& block) {
  block.state = State::Live;
  block.drop_pin(0xFF);
  ++counters_.live_blocks;
  counters_.live_bytes += block.granted();
}

void Windows::end_life(WindowBlock& block, const FreeTicket& ticket) {
  ++changes_;
  --counters_.live_blocks;
  counters_.live_bytes -= block.granted();
  if (block.whole != nullptr) all_deferred_bytes_ -= block.whole->deferred_bytes;
  if (block.pinned() && block.shared != nullptr) {
    --block.shared->pinned;
    shared_.refile(*block.shared);
  }
  block.set_ticket(ticket);
  if (block.state == State::Moving) {
    block.state = State::Released;
    return;
  }
  if (ticket.is_for_anyone() || order_.is_done(ticket)) return keep(block);
  cached_.add_pending(block);
}

// Keeps a block for the next one of its size. It was in use until now, and is in no list.
void Windows::keep(WindowBlock& block) {
  if (block.shared != nullptr) shared_.end_use(*block.shared);
  if (is_reusable(block)) return cached_.add_ready(block);
  unmap_block(block);
}

bool Windows::is_reusable(const WindowBlock& block) const {
  if (block.whole != nullptr && (block.pins() & held_by_others) != 0) return false;
  if (block.whole != nullptr && block.whole->deferred_bytes != 0) return false;
  // The next block may find room on the device.
  if (residency(block) == Residency::Far) return false;
  if (block.shared == nullptr) return true;
  return block.shared->takes_blocks() && block.piece_behind == Behind::Usable;
}

Residency Windows::residency(const WindowBlock& block) {
  const bool whole_is_far = block.whole != nullptr && block.whole->far_bytes != 0;
  const bool piece_is_far = block.shared != nullptr && block.shared->residency() == Residency::Far;
  return whole_is_far || piece_is_far ? Residency::Far : Residency::Near;
}

Size Windows::far_bytes_of(const ChunkRef& chunk) const {
  return cuvmm::residency(chunk->location(), settings_.device) == Residency::Far ? chunk->size()
                                                                                 : 0;
}

// Account for a chunk of a block's own that is now mapped, or no longer.
void Windows::add_bytes_of(WindowBlock::Whole& whole, const ChunkRef& chunk) {
  whole.bytes += chunk->size();
  whole_bytes_ += chunk->size();
  whole.far_bytes += far_bytes_of(chunk);
  whole_far_bytes_ += far_bytes_of(chunk);
}

void Windows::take_bytes_of(WindowBlock::Whole& whole, const ChunkRef& chunk) {
  whole.bytes -= chunk->size();
  whole_bytes_ -= chunk->size();
  whole.far_bytes -= far_bytes_of(chunk);
  whole_far_bytes_ -= far_bytes_of(chunk);
}

void Windows::give_up(WindowBlock& ready) {
  cached_.remove(ready);
  unmap_block(ready);
}

// Unmaps the window of a block that is not held, not in use and in no list, and ends the block. If
// the driver refuses, tidy() tries the rest again.
void Windows::unmap_block(WindowBlock& block) {
  if (!adrift_.empty()) std::erase(adrift_, &block);
  if (!unmap_all(block)) {
    block.state = State::Leaving;
    leaving_.push_back(block);
    return;
  }
  const PlacedBlock placed = block.placed(granule_);
  addresses_.give(placed.window(), placed.window_bytes());
  if (block.whole != nullptr) remove_large(block);
  if (SharedChunk* const chunk = std::exchange(block.shared, nullptr)) {
    shared_.take_out(*chunk, block);
    remove_if_vacant(*chunk);
  }
  block.state = State::Unused;
  block.unplace();
  records_.give_back(block);
}

// Unmaps from the back, so that the chunks that remain after a refusal are the first ones.
bool Windows::unmap_all(WindowBlock& block) {
  const PlacedBlock placed = block.placed(granule_);
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
bool Windows::unmap_one(CUdeviceptr address, const ChunkRef& chunk) {
  if (maps_.unmap(address, chunk).ok()) return true;
  const Result<void> again = maps_.unmap(address, chunk);
  if (!again.ok()) unmap_refusal_ = again.error();
  return again.ok();
}

void Windows::remove_if_vacant(SharedChunk& chunk) {
  if (chunk.pieces.empty() && chunk.copies == 0) shared_.remove(chunk);
}

void Windows::add_large(WindowBlock& block) {
  block.whole = std::make_unique<WindowBlock::Whole>();
  block.whole->place = large_.size();
  large_.push_back(&block);
}

void Windows::remove_large(WindowBlock& block) {
  WindowBlock* const moved = large_.back();
  large_[block.whole->place] = moved;
  moved->whole->place = block.whole->place;
  large_.pop_back();
  block.whole.reset();
}

// Releases all windows of a chunk without a piece in use. Returns whether the chunk is gone.
bool Windows::give_up_pieces(SharedChunk& idle) {
  const SharedChunk::Id id = idle.id;
  for (WindowBlock* piece : idle.pieces.copy()) {
    if (piece->state == State::Ready) give_up(*piece);
  }
  return SharedChunks::if_still(&idle, id) == nullptr;
}

// Releases chunks without a piece in use, until `wanted` bytes have returned to the store.
Size Windows::give_up_whole_chunks(Size wanted) {
  const Size before = shared_.physical_bytes() + whole_bytes_;
  const auto given_up = [&] { return before - shared_.physical_bytes() - whole_bytes_; };
  SharedChunk* idle = shared_.oldest_idle();
  while (idle != nullptr && given_up() < wanted) {
    SharedChunk* const next = SharedChunks::idle_after(*idle);
    give_up_pieces(*idle);
    idle = next;
  }
  while (WindowBlock* const large = cached_.oldest_large()) {
    if (given_up() >= wanted) break;
    give_up(*large);
  }
  return given_up();
}

std::size_t Windows::settle_pending() {
  std::size_t settled = 0;
  WindowBlock* block = cached_.oldest_pending();
  while (block != nullptr) {
    WindowBlock* const next = CachedWindows::pending_after(*block);
    if (order_.is_done(block->ticket())) {
      cached_.remove(*block);
      keep(*block);
      ++settled;
    }
    block = next;
  }
  return settled;
}

// Finds out how far the device has come with freed blocks. If no stream is used again, nothing else
// does.
void Windows::look_at_pending() {
  std::unordered_set<StreamId> streams;
  for (const WindowBlock* block = cached_.oldest_pending(); block != nullptr;
       block = CachedWindows::pending_after(*block)) {
    if (streams.insert(block->freed_on).second) order_.look(block->freed_on);
  }
}

// Retries what the driver refused and what did not finish in time.
void Windows::tidy() {
  settle_batches();
  look_at_pending();
  settle_pending();
  if (!adrift_.empty()) mend();
  for (std::size_t left = leaving_.count(); left > 0; --left) unmap_block(*leaving_.pop_front());
}

void Windows::mend() {
  std::erase_if(adrift_, [this](WindowBlock* block) {
    WindowRemap remap{*this};
    remap.add_piece(*block, block->shared->chunk);
    return remap.commit().ok();
  });
}

Size Windows::reclaim(Size wanted, Location where) {
  if (!(where == Location::device(settings_.device))) return 0;
  const Holding holding{lock_, std::try_to_lock};
  if (!holding.owns_lock() || is_away_) return 0;
  tidy();
  const Size gone = give_up_whole_chunks(wanted);
  tell_of_change();
  return gone;
}

Size Windows::release(Size wanted) {
  const Holding holding{lock_};
  tidy();
  const Size gone = give_up_whole_chunks(wanted);
  tell_of_change();
  return gone;
}

Size Windows::trim(Size keep) {
  const Holding holding{lock_};
  tidy();
  const Size wanted = saturating_sum(counters_.live_bytes, keep);
  const Size gone = held() > wanted ? give_up_whole_chunks(held() - wanted) : 0;
  tell_of_change();
  return gone;
}

}  // namespace cuvmm
