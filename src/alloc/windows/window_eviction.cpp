// SPDX-License-Identifier: Apache-2.0
#include "alloc/windows/window_eviction.hpp"

#include "alloc/windows/window_remap.hpp"

namespace cuvmm {
namespace {

using State = WindowBlock::State;
using Behind = WindowBlock::Behind;

const char* why_it_stays(const SharedChunk& chunk) {
  if (chunk.retired || chunk.chunk.exported()) return "another process holds it";
  if (chunk.copies != 0) return "it is still being copied";
  for (const WindowBlock* piece : chunk.pieces) {
    if (const char* const why = reason_to_stay(piece->pins())) return why;
    if (piece->state != State::Live) return "work may still use it";
    if (piece->piece_behind != Behind::Usable) return "the driver refused to map it";
  }
  return nullptr;
}

const char* why_it_stays(const WindowBlock& block, const ChunkRef& chunk) {
  if (chunk.exported()) return "another process holds it";
  if (const char* const why = reason_to_stay(block.pins())) return why;
  return block.state == State::Live ? nullptr : "work may still use it";
}

EvictedChunk departing(EvictionSource& of, CUdeviceptr address, const ChunkRef& chunk) {
  return {.of = &of,
          .address = address,
          .size = chunk->size(),
          .home = chunk->location(),
          .exportable = chunk->exportable() ? Export::Yes : Export::No,
          .chunk = chunk};
}

}  // namespace

void WindowEviction::list_held(std::vector<HeldChunk>& held) const {
  const Holding holding{table_.lock};
  for (const SharedChunk* shared : table_.shared.all()) {
    const Chunk& chunk = *shared->chunk;
    const bool stays = why_it_stays(*shared) != nullptr;
    for (const WindowBlock* piece : shared->pieces) {
      if (piece->state != State::Live) continue;
      held.push_back({piece->placed(table_.granule).piece_window(), table_.granule,
                      chunk.location(), chunk.handle(), piece->address(), piece->granted(),
                      piece->holder(), stays});
    }
  }
  for (const WindowBlock* block : table_.large) {
    if (block->state != State::Live) continue;
    CUdeviceptr address = block->placed(table_.granule).whole() + block->whole->deferred_bytes;
    for (const ChunkRef& chunk : block->whole->chunks) {
      held.push_back({address, chunk->size(), chunk->location(), chunk->handle(), block->address(),
                      block->granted(), block->holder(), why_it_stays(*block, chunk) != nullptr});
      address += chunk->size();
    }
  }
}

void WindowEviction::begin_eviction(EvictionSet& evicted) {
  const Holding holding{table_.lock};
  compactor_.tidy();
  if (evicted.cached == EvictionSet::Cached::Goes) {
    while (table_.cached.oldest_large() != nullptr) table_.give_up(*table_.cached.oldest_large());
    while (table_.cached.oldest_small() != nullptr) table_.give_up(*table_.cached.oldest_small());
  }
  table_.is_away = true;
  evicted.owners.push_back(this);
  for (SharedChunk* chunk : table_.shared.all()) {
    if (!evicted.wants(*chunk->chunk)) continue;
    if (const char* const why = why_it_stays(*chunk)) {
      evicted.exclude(table_.granule, chunk->chunk->location(), why);
      continue;
    }
    const CUdeviceptr address = chunk->pieces.front()->placed(table_.granule).piece_window();
    evicted.chunks.push_back(departing(*this, address, chunk->chunk));
    evicted.chunks.back().shared = chunk;
  }
  for (WindowBlock* block : table_.large) {
    CUdeviceptr address = block->placed(table_.granule).whole() + block->whole->deferred_bytes;
    for (std::size_t i = 0; i < block->whole->chunks.size(); ++i) {
      const ChunkRef& chunk = block->whole->chunks[i];
      const CUdeviceptr here = address;
      address += chunk->size();
      if (!evicted.wants(*chunk)) continue;
      if (const char* const why = why_it_stays(*block, chunk)) {
        evicted.exclude(chunk->size(), chunk->location(), why);
      } else {
        evicted.chunks.push_back(departing(*this, here, chunk));
        evicted.chunks.back().block = block;
        evicted.chunks.back().index = i;
      }
    }
  }
}

void WindowEviction::add_slots(WindowRemap& remap, const EvictedChunk& one, const ChunkRef& after) {
  if (one.shared == nullptr) return remap.add_own(*one.block, one.index, one.address, after);
  for (WindowBlock* piece : one.shared->pieces) remap.add_piece(*piece, after);
}

Result<void> WindowEviction::take_out(EvictedChunk& one) {
  const Holding holding{table_.lock};
  WindowRemap remap{table_};
  add_slots(remap, one, {});
  Result<void> done = remap.commit();
  if (!done.ok()) done = remap.commit();  // a refusal may be transient
  if (!done.ok()) return done;
  if (one.shared != nullptr) one.shared->chunk = {};
  one.chunk = {};
  return {};
}

Result<void> WindowEviction::put_back(std::span<EvictedChunk> some) {
  const Holding holding{table_.lock};
  WindowRemap remap{table_};
  for (const EvictedChunk& one : some) {
    if (one.shared != nullptr) one.shared->chunk = one.chunk;
    add_slots(remap, one, one.chunk);
  }
  TRY(remap.commit());
  for (const EvictedChunk& one : some) {
    if (one.shared != nullptr) note_residency(*one.shared);
  }
  return {};
}

void WindowEviction::count_as_restored(std::span<EvictedChunk> some) {
  const Holding holding{table_.lock};
  for (const EvictedChunk& one : some) {
    if (one.shared != nullptr) {
      if (!one.shared->chunk) one.shared->chunk = one.chunk;
      note_residency(*one.shared);
    } else if (ChunkRef& own = one.block->whole->chunks[one.index]; !own) {
      own = one.chunk;
      table_.add_bytes_of(*one.block->whole, one.chunk);
    }
  }
}

void WindowEviction::note_residency(SharedChunk& shared) {
  table_.shared.set_residency(shared, cuvmm::residency(shared.chunk->location(), table_.device));
}

void WindowEviction::end_eviction() {
  const Holding holding{table_.lock};
  table_.is_away = false;
}

}  // namespace cuvmm
