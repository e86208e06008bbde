// SPDX-License-Identifier: Apache-2.0
#include "alloc/windows/window_remap.hpp"

#include <algorithm>
#include <utility>

namespace cuvmm {

using Behind = WindowBlock::Behind;

void WindowRemap::add_piece(WindowBlock& block, const ChunkRef& after) {
  slots_.push_back({block.placed(table_.granule).piece_window(), &block, its_piece, after});
}

void WindowRemap::add_own(WindowBlock& block, std::size_t index, CUdeviceptr address,
                          const ChunkRef& after) {
  slots_.push_back({address, &block, index, after});
}

Backing WindowRemap::backing(const Slot& slot) const {
  if (slot.index != its_piece) {
    const ChunkRef& chunk = slot.block->whole->chunks[slot.index];
    // A chunk that stays may lack its access after a refused undo, so the access is set again.
    return {chunk, chunk == slot.after ? AccessSet::none() : table_.maps.access()};
  }
  if (slot.block->piece_behind == Behind::Nothing) return {};
  const bool is_usable = slot.block->piece_behind == Behind::Usable;
  return {slot.block->shared->chunk, is_usable ? table_.maps.access() : AccessSet::none()};
}

Result<void> WindowRemap::commit() {
  // Slots that get memory must follow one another, to form runs.
  std::sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
    return std::pair(bool{a.after}, a.address) < std::pair(bool{b.after}, b.address);
  });
  Remap remap{table_.driver};
  const Slot* last = nullptr;
  for (const Slot& slot : slots_) {
    if (last == nullptr || slot.address < last->address ||
        !table_.addresses.in_one_reservation(last->address,
                                             slot.address - last->address + table_.granule)) {
      remap.separate();
    }
    last = &slot;
    remap.add(slot.address, backing(slot),
              {slot.after, slot.after ? table_.maps.access() : AccessSet::none()});
  }
  const Result<void> done = remap.commit(*this);
  is_torn_ = !done.ok() && (is_torn_ || remap.is_torn());
  return done;
}

void WindowRemap::unmap_all() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const ChunkRef chunk = slot.block->whole->chunks[slot.index];
    if (!chunk) continue;
    table_.maps.unmap_or_defer(slot.address, chunk);
    remove_backing({i, slot.address}, chunk);
  }
}

bool WindowRemap::has_after(const WindowBlock& block) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.block == &block && slot.index == its_piece && slot.has_after;
  });
}

void WindowRemap::set_backing(At at, const ChunkRef& chunk, const AccessSet& access) {
  Slot& slot = slots_[at.slot];
  WindowBlock& block = *slot.block;
  const bool is_piece = slot.index == its_piece;
  const bool was_mapped =
      is_piece ? block.piece_behind != Behind::Nothing : bool{block.whole->chunks[slot.index]};
  slot.has_after = chunk == slot.after;
  if (is_piece) block.piece_behind = access.is_none() ? Behind::Mapped : Behind::Usable;
  if (was_mapped) return;
  table_.maps.note_mapped(slot.address, chunk);
  if (is_piece) return;
  block.whole->chunks[slot.index] = chunk;
  table_.add_bytes_of(*block.whole, chunk);
}

void WindowRemap::remove_backing(At at, const ChunkRef& chunk) {
  Slot& slot = slots_[at.slot];
  slot.has_after = false;
  table_.maps.note_unmapped(slot.address, chunk);
  if (slot.index == its_piece) {
    slot.block->piece_behind = Behind::Nothing;
  } else {
    table_.take_bytes_of(*slot.block->whole, chunk);
    slot.block->whole->chunks[slot.index] = {};
  }
}

}  // namespace cuvmm
