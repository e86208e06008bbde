// SPDX-License-Identifier: Apache-2.0
// Live memory of windows goes to other chunks, under the same addresses. Pieces move as in a
// compaction, each from its chunk to the same bytes of another; whole chunks are copied and
// exchanged. What fails stays where it was, or has moved: both are whole.
#include <algorithm>

#include "alloc/relocation.hpp"
#include "alloc/windows/window_batch.hpp"
#include "alloc/windows/windows.hpp"
#include "base/log.hpp"

namespace cuvmm {
namespace {

using State = WindowBlock::State;
using Behind = WindowBlock::Behind;

// So much is mapped a second time at once.
constexpr std::size_t chunks_at_once = 128;
constexpr Size bytes_at_once = 256 * MiB;

const char* why_it_stays(const SharedChunk& chunk) {
  if (chunk.retired || chunk.chunk.exported()) return "another process holds it";
  if (chunk.copies != 0) return "it is still being copied";
  for (const WindowBlock* piece : chunk.pieces) {
    if (const char* const why = reason_to_stay(piece->pins())) return why;
    if (piece->state == State::Ready) continue;
    if (piece->state != State::Live) return "work may still use it";
    if (piece->piece_behind != Behind::Usable) return "the driver refused to map it";
  }
  return nullptr;
}

const char* why_it_stays(const WindowBlock& block) {
  if (const char* const why = reason_to_stay(block.pins())) return why;
  if (block.state != State::Live && block.state != State::Ready) return "work may still use it";
  return nullptr;
}

}  // namespace

void Windows::relocate(Relocation& relocation) {
  const Holding holding{lock_};
  const bool moves = relocation.what == Relocation::Do::Move;
  if (moves) {
    tidy();
    if (relocation.free == Relocation::Free::IsLetGo) {
      while (cached_.oldest_large() != nullptr) give_up(*cached_.oldest_large());
      while (cached_.oldest_small() != nullptr) give_up(*cached_.oldest_small());
    }
  }
  relocate_shared(relocation);
  relocate_whole(relocation);
}

void Windows::relocate_shared(Relocation& relocation) {
  std::vector<SharedChunk*> going;
  for (SharedChunk* chunk : shared_.all()) {
    if (!relocation.wants(*chunk->chunk)) continue;
    if (const char* const why = why_it_stays(*chunk)) {
      relocation.stays(granule_, why);
    } else if (relocation.what == Relocation::Do::Count) {
      ++relocation.missing[granule_];
    } else {
      going.push_back(chunk);
    }
  }
  for (std::size_t first = 0; first < going.size() && !relocation.failure;
       first += chunks_at_once) {
    const std::size_t end = std::min(going.size(), first + chunks_at_once);
    const Result<void> done = relocate_batch({going.begin() + static_cast<std::ptrdiff_t>(first),
                                              going.begin() + static_cast<std::ptrdiff_t>(end)},
                                             relocation);
    if (!done.ok()) relocation.failure = done.error();
  }
}

Result<void> Windows::relocate_batch(const std::vector<SharedChunk*>& going,
                                     Relocation& relocation) {
  std::vector<ChunkRef> chunks;
  for (std::size_t i = 0; i < going.size(); ++i) {
    if (ChunkRef chunk = relocation.take(granule_)) chunks.push_back(std::move(chunk));
  }
  if (chunks.empty()) return {};
  auto batch = std::make_unique<Batch>();
  batch->stream = relocation.copy.stream;
  batch->place = TRY(SecondPlace::of(driver_, granule_, chunks, settings_.device));
  CUdeviceptr way = batch->place->mapping.address();
  std::vector<std::pair<SharedChunk*, std::uint64_t>> targets;
  for (std::size_t i = 0; i < chunks.size(); ++i, way += granule_) {
    SharedChunk& from = *going[i];
    for (WindowBlock* piece : std::vector<WindowBlock*>(from.pieces)) {
      if (piece->state == State::Ready) give_up(*piece);
    }
    if (from.pieces.empty()) continue;  // cannot be: somebody uses it
    Format format = from.format->format;
    format.lies = cuvmm::lies(chunks[i]->location(), settings_.device);
    SharedChunk& to = shared_.add(std::move(chunks[i]), format);
    targets.emplace_back(&to, to.id);
    BatchSource source{&from, from.id, {}};
    for (WindowBlock* piece : from.pieces) source.moves.push_back({piece, &to, to.id, way});
    batch->sources.push_back(std::move(source));
  }
  begin(*batch);
  const Result<void> submitted = copy(*batch);
  const Result<void> over = wait_for_copies_of(*batch, relocation.wait);
  if (!over.ok()) {
    relocation.copies_may_run = true;
    unfinished_.push_back(std::move(batch));
    return over;
  }
  Size freed = 0;
  const Result<void> finished = finish(*batch, submitted.ok(), freed);
  relocation.moved += freed;
  for (const auto& [to, id] : targets) {
    if (SharedChunk* const still = SharedChunks::if_still(to, id)) remove_if_vacant(*still);
  }
  TRY(submitted);
  return finished;
}

void Windows::relocate_whole(Relocation& relocation) {
  std::vector<WholeMove> moves;
  Size bytes = 0;
  const auto carry_out = [&] {
    if (moves.empty() || relocation.failure) return;
    const Result<void> done = relocate_chunks(moves, relocation);
    if (!done.ok()) relocation.failure = done.error();
    moves.clear();
    bytes = 0;
  };
  for (WindowBlock* block : large_) {
    CUdeviceptr address = block->placed(granule_).whole() + block->whole->unbacked;
    for (std::size_t i = 0; i < block->whole->chunks.size(); ++i) {
      const ChunkRef& chunk = block->whole->chunks[i];
      const CUdeviceptr here = address;
      address += chunk->size();
      if (relocation.failure || !relocation.wants(*chunk)) continue;
      const char* const why = chunk.exported() ? "another process holds it" : why_it_stays(*block);
      if (why != nullptr) {
        relocation.stays(chunk->size(), why);
      } else if (relocation.what == Relocation::Do::Count) {
        ++relocation.missing[chunk->size()];
      } else if (ChunkRef to = relocation.take(chunk->size())) {
        bytes += chunk->size();
        moves.push_back({block, i, here, std::move(to)});
        if (bytes >= bytes_at_once) carry_out();
      }
    }
  }
  carry_out();
}

Result<void> Windows::relocate_chunks(const std::vector<WholeMove>& moves, Relocation& relocation) {
  std::vector<ChunkRef> chunks;
  chunks.reserve(moves.size());
  for (const WholeMove& move : moves) chunks.push_back(move.to);
  auto batch = std::make_unique<Batch>();
  batch->stream = relocation.copy.stream;
  batch->place = TRY(SecondPlace::of(driver_, granule_, chunks, settings_.device));
  CUdeviceptr way = batch->place->mapping.address();
  Result<void> submitted;
  for (const WholeMove& move : moves) {
    const Size size = move.to->size();
    submitted = driver_.check(driver_.cuMemcpyDtoDAsync(way, move.address, size, batch->stream),
                              "copy a block", size);
    if (!submitted.ok()) break;
    way += size;
  }
  const Result<void> over = wait_for_copies_of(*batch, relocation.wait);
  if (!over.ok()) {
    relocation.copies_may_run = true;
    unfinished_.push_back(std::move(batch));
    return over;
  }
  TRY(submitted);
  for (const WholeMove& move : moves) TRY(exchange_whole(move, relocation));
  return {};
}

// Both chunks hold the contents, so either will do where the driver refuses something.
Result<void> Windows::exchange_whole(const WholeMove& move, Relocation& relocation) {
  using Left = WindowMaps::Left;
  WindowBlock::Whole& whole = *move.block->whole;
  ChunkRef& chunk = whole.chunks[move.index];
  const Size size = chunk->size();
  const WindowMaps::Exchange done = maps_.exchange(move.address, chunk, move.to);
  Left left = done.left;
  constexpr int patience = 8;
  for (int tries = 0; tries < patience && left != Left::After && left != Left::Before; ++tries) {
    if (left == Left::Nothing && maps_.map(move.address, chunk).ok()) left = Left::BeforeUnusable;
    if (left == Left::Nothing || !maps_.allow(move.address, size).ok()) continue;
    left = left == Left::AfterUnusable ? Left::After : Left::Before;
  }
  if (left != Left::After && left != Left::Before) {
    CUVMM_LOG(Error, "a block of %s cannot be mapped again: %s", print_size(size).c_str(),
              done.outcome.error().text().c_str());
  }
  if (left == Left::After || left == Left::AfterUnusable) {
    take_bytes_of(whole, chunk);
    add_bytes_of(whole, move.to);
    chunk = move.to;
    relocation.moved += size;
  }
  return done.outcome;
}

}  // namespace cuvmm
