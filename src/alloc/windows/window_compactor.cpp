// SPDX-License-Identifier: Apache-2.0
#include "alloc/windows/window_compactor.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "alloc/windows/colouring.hpp"
#include "alloc/windows/window_remap.hpp"
#include "base/not_cancelled.hpp"
#include "stream/captures.hpp"
#include "trace/record_event.hpp"

namespace cuvmm {
namespace {

using State = WindowBlock::State;
using Behind = WindowBlock::Behind;

// Few enough that the lock is not held for long.
constexpr std::size_t pieces_a_batch = 512;

constexpr int plans_at_most = 3;

// A plan examines all chunks. So after a futile one, the number of changes to wait for before the
// next grows by one per this many chunks.
constexpr std::size_t chunks_a_change = 1024;

std::uint64_t in_ns(Duration duration) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(duration).count());
}

enum class Copies : std::uint8_t { Done, StillRun };

Result<Copies> wait_for_copies(const Driver& driver, CUstream stream, Duration at_most) {
  const std::uint64_t until = now_ns() + in_ns(at_most);
  constexpr int refusals_at_most = 3;
  for (int refusals = 0;;) {
    const CUresult answer = driver.cuStreamQuery(stream);
    if (answer == CUDA_SUCCESS) return Copies::Done;
    if (answer != CUDA_ERROR_NOT_READY && ++refusals == refusals_at_most) {
      return driver.error_of(answer, "wait for copies of compaction");
    }
    if (now_ns() >= until) return Copies::StillRun;
    rest_us(20);
  }
}

bool may_move(const WindowBlock& piece) {
  return piece.state == State::Live && !piece.pinned() && piece.piece_behind == Behind::Usable;
}

bool takes_part(const SharedChunk& chunk) {
  return chunk.takes_blocks() && chunk.copies == 0 && chunk.in_use != 0;
}

}  // namespace

// Selects up to `chunks` chunks to empty, and where their pieces go. Ready pieces count as vacant.
WindowCompactor::Plan WindowCompactor::plan(std::size_t chunks) const {
  Colouring colouring{table_.granule};
  std::vector<SharedChunk*> chunk_of;
  std::vector<WindowBlock*> block_of;
  std::vector<std::size_t> first_piece_of;
  for (SharedChunk* chunk : table_.shared.all()) {
    if (!takes_part(*chunk) || chunk->residency() == Residency::Far) continue;
    const bool all_may = std::all_of(
        chunk->pieces.begin(), chunk->pieces.end(),
        [](const WindowBlock* piece) { return piece->state == State::Ready || may_move(*piece); });
    const auto index =
        colouring.add_chunk(all_may ? Colouring::Role::MayGo : Colouring::Role::Stays);
    chunk_of.push_back(chunk);
    first_piece_of.push_back(block_of.size());
    for (WindowBlock* piece : chunk->pieces) {
      if (piece->state == State::Ready) continue;
      colouring.add_piece(index, chunk->where(*piece));
      block_of.push_back(piece);
    }
  }
  first_piece_of.push_back(block_of.size());
  colouring.empty(chunks);

  Plan made;
  for (const Colouring::Index emptied : colouring.emptied()) {
    Source source{chunk_of[emptied], chunk_of[emptied]->id, {}};
    for (std::size_t piece = first_piece_of[emptied]; piece < first_piece_of[emptied + 1];
         ++piece) {
      SharedChunk* const to = chunk_of[colouring.chunk_of(static_cast<Colouring::Index>(piece))];
      source.moves.push_back({block_of[piece], to, to->id});
    }
    made.push_back(std::move(source));
  }
  return made;
}

bool WindowCompactor::is_worthwhile(Size missing) {
  if (table_.changes < worth_while_from_ && futile_bytes_ <= missing) return false;
  if (plan(missing / table_.granule).size() * table_.granule >= missing) return true;
  // Stopping the device gains nothing, nor does planning again before much has changed.
  worth_while_from_ = table_.changes + 1 + table_.shared.all().size() / chunks_a_change;
  futile_bytes_ = missing;
  return false;
}

Result<Size> WindowCompactor::compact(Size wanted, const Compaction& how) {
  Size freed = 0;
  // Between two batches other threads may take vacant bytes. Plan again for the moves that this
  // spoils.
  for (int plans = 0; freed < wanted && plans < plans_at_most; ++plans) {
    Plan made;
    {
      const Holding holding{table_.lock};
      tidy();
      freed += table_.give_up_whole_chunks(wanted - freed);
      if (freed >= wanted) break;
      made = plan((wanted - freed + table_.granule - 1) / table_.granule);
    }
    const Size before = freed;
    const Result<void> done = carry_out(made, how, freed);
    if (!done.ok() && freed < wanted) return done.error();
    if (freed == before) break;
  }
  return freed;
}

Result<void> WindowCompactor::carry_out(Plan& plan, const Compaction& how, Size& freed) {
  auto next = plan.begin();
  while (next != plan.end()) {
    auto batch = std::make_unique<Batch>();
    batch->stream = how.copy.stream->handle();
    for (std::size_t pieces = 0; next != plan.end() && pieces < pieces_a_batch; ++next) {
      pieces += next->moves.size();
      batch->sources.push_back(std::move(*next));
    }
    {
      const Holding holding{table_.lock};
      begin(*batch);
    }
    const Result<void> submitted = copy(*batch);
    const Result<Copies> copies = wait_for_copies(table_.driver, batch->stream, how.wait);
    const Holding holding{table_.lock};
    if (!copies.ok() || *copies == Copies::StillRun) {
      unfinished_.push_back(std::move(batch));
      if (!copies.ok()) return copies.error();
      return Error{.kind = ErrorKind::TimedOut, .doing = "wait for copies of compaction"};
    }
    TRY(finish(*batch, submitted.ok(), freed));
    TRY(submitted);
  }
  return {};
}

// Reserves the target bytes of every piece. Leaves out chunks that have changed since the plan.
void WindowCompactor::begin(Batch& batch) {
  std::erase_if(batch.sources, [this](Source& source) { return !begin_one(source); });
  std::erase_if(batch.sources, [this](Source& source) {
    if (find_write_addresses(source)) return false;
    give_up_moves(source);
    return true;
  });
  for (const Source& source : batch.sources) {
    for (const Move& move : source.moves) {
      ++source.chunk->copies;
      ++move.to->copies;
    }
  }
}

bool WindowCompactor::can_begin(const Source& source) const {
  const SharedChunk& chunk = *source.chunk;
  if (chunk.id != source.id || !takes_part(chunk) || chunk.in_use != source.moves.size()) {
    return false;
  }
  return std::all_of(source.moves.begin(), source.moves.end(), [&](const Move& move) {
    return move.block->shared == &chunk && may_move(*move.block) && move.to->id == move.to_id &&
           takes_part(*move.to) && move.to->could_be_vacant(chunk.where(*move.block));
  });
}

bool WindowCompactor::begin_one(Source& source) {
  if (!can_begin(source)) return false;
  source.chunk->emptying = true;
  table_.shared.refile(*source.chunk);
  for (Move& move : source.moves) {
    const Stretch where = source.chunk->where(*move.block);
    for (WindowBlock* ready : move.to->pieces_over(where)) {
      if (ready->state == State::Ready) table_.give_up(*ready);
    }
    if (!move.to->is_vacant(where)) {
      give_up_moves(source);
      return false;
    }
    table_.shared.put(*move.to, *move.block);
    move.block->state = State::Moving;
  }
  return true;
}

// Finds addresses through which to write each target: the window of any block in it. None of those
// windows is unmapped while copies run.
bool WindowCompactor::find_write_addresses(Source& source) const {
  return std::all_of(source.moves.begin(), source.moves.end(), [this](Move& move) {
    for (const WindowBlock* piece : move.to->pieces) {
      if (piece->shared != move.to || piece->piece_behind != Behind::Usable) continue;
      move.write_address = piece->placed(table_.granule).piece_window();
      return true;
    }
    return false;
  });
}

// Undoes begin_one(), before anything was copied.
void WindowCompactor::give_up_moves(Source& source) {
  for (const Move& move : source.moves) {
    if (move.block->state == State::Moving) cancel(*move.block, *move.to);
  }
  source.chunk->emptying = false;
  table_.shared.refile(*source.chunk);
}

Result<void> WindowCompactor::copy(const Batch& batch) const {
  for (const Source& source : batch.sources) {
    for (const Move& move : source.moves) {
      const PlacedBlock placed = move.block->placed(table_.granule);
      const Stretch piece = placed.piece();
      TRY(table_.driver.check(table_.driver.cuMemcpyDtoDAsync(move.write_address + piece.offset,
                                                              placed.piece_window() + piece.offset,
                                                              piece.size, batch.stream),
                              "copy a piece of a block", piece.size));
    }
  }
  return {};
}

// Called when the copies have ended. `copied`: all of them succeeded.
Result<void> WindowCompactor::finish(Batch& batch, bool copied, Size& freed) {
  for (const Source& source : batch.sources) {
    for (const Move& move : source.moves) {
      --source.chunk->copies;
      --move.to->copies;
    }
  }
  Result<void> outcome;
  for (Source& source : batch.sources) {
    std::vector<const Move*> wanted;
    for (const Move& move : source.moves) {
      if (copied && outcome.ok() && move.block->state == State::Moving && !move.block->pinned()) {
        wanted.push_back(&move);
      } else {
        cancel(*move.block, *move.to);
      }
    }
    if (!wanted.empty()) outcome = exchange(*source.chunk, wanted);
    if (end_emptying(source)) freed += table_.granule;
  }
  return outcome;
}

// Maps the chunks that have the copies behind the addresses of the pieces.
Result<void> WindowCompactor::exchange(SharedChunk& from, const std::vector<const Move*>& moves) {
  WindowRemap remap{table_};
  for (const Move* move : moves) remap.add_piece(*move->block, move->to->chunk);
  const Result<void> done = remap.commit();
  for (const Move* move : moves) {
    if (move->block->piece_behind != Behind::Usable) table_.adrift.push_back(move->block);
    if (remap.has_after(*move->block)) {
      finish_move(from, *move);
    } else {
      cancel(*move->block, *move->to);
    }
  }
  return done;
}

void WindowCompactor::finish_move(SharedChunk& from, const Move& move) {
  WindowBlock& block = *move.block;
  table_.shared.end_use(from);
  table_.shared.take_out(from, block);
  block.shared = move.to;
  block.state = State::Live;
  const Stretch piece = from.where(block);
  ++counters_.blocks;
  counters_.bytes += piece.size;
  CUVMM_TRACE(.event = TraceEvent::Compact, .device = static_cast<std::int16_t>(table_.device),
              .address = block.placed(table_.granule).piece_window() + piece.offset,
              .size = piece.size, .other = move.to->chunk->handle());
}

// The piece stays where it is, and its target bytes become vacant again.
void WindowCompactor::cancel(WindowBlock& block, SharedChunk& target) {
  table_.shared.end_use(target);
  table_.shared.take_out(target, block);
  if (std::exchange(block.state, State::Live) != State::Released) return;
  // Freed meanwhile; table_.end_life() has updated the counters.
  const FreeTicket ticket = block.ticket();
  if (ticket.is_for_anyone() || table_.order.is_done(ticket)) return table_.keep(block);
  table_.cached.add_pending(block);
}

// Returns whether the chunk has returned to the store.
bool WindowCompactor::end_emptying(const Source& source) {
  SharedChunk& chunk = *source.chunk;
  const auto is_gone = [&] { return chunk.id != source.id; };
  if (!is_gone() && chunk.in_use == 0) table_.give_up_pieces(chunk);
  if (!is_gone()) table_.remove_if_vacant(chunk);
  if (is_gone()) {
    ++counters_.chunks;
    return true;
  }
  chunk.emptying = false;
  table_.shared.refile(chunk);
  return false;
}

// Ends batches whose copies outlasted their time limit. The bytes that they wrote are out of date
// by now.
void WindowCompactor::settle_batches() {
  if (unfinished_.empty()) return;
  const RelaxedCapture relaxed{table_.driver};
  std::vector<std::unique_ptr<Batch>> still;
  for (auto& batch : unfinished_) {
    if (table_.driver.cuStreamQuery(batch->stream) == CUDA_SUCCESS) {
      Size freed = 0;
      (void)finish(*batch, false, freed);
    } else {
      still.push_back(std::move(batch));
    }
  }
  unfinished_.swap(still);
}

void WindowCompactor::tidy() {
  settle_batches();
  table_.tidy();
}

void WindowCompactor::abandon() {
  for (const auto& batch : unfinished_) {
    // The batch's blocks end here. If this fails, the context is gone or broken and copies nothing.
    (void)table_.driver.cuStreamSynchronize(batch->stream);
  }
  unfinished_.clear();
}

InvariantViolation WindowCompactor::violation() const {
  std::size_t moving = 0;
  table_.for_each_block([&](const WindowBlock& block) {
    if (block.state == State::Moving || block.state == State::Released) ++moving;
  });
  std::size_t moves = 0;
  std::unordered_map<const SharedChunk*, std::size_t> copies;
  for (const auto& batch : unfinished_) {
    for (const Source& source : batch->sources) {
      moves += source.moves.size();
      copies[source.chunk] += source.moves.size();
      for (const Move& move : source.moves) ++copies[move.to];
    }
  }
  // A batch in progress is recorded nowhere else.
  if (moves > moving) return "windows: moves are remembered that are over";
  for (const auto& [chunk, count] : copies) {
    if (chunk->copies < count) return "windows: copies of a chunk are forgotten";
  }
  return {};
}

}  // namespace cuvmm
