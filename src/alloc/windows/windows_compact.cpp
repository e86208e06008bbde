// SPDX-License-Identifier: Apache-2.0
// Compaction. While nothing else touches them, live pieces are copied to vacant bytes of other
// chunks, which are already mapped in some window. Then those chunks are mapped behind the
// addresses of the pieces, for all pieces of an emptied chunk together. If that fails, they stay
// where they were.
#include <time.h>

#include <algorithm>
#include <utility>

#include "alloc/windows/colouring.hpp"
#include "alloc/windows/window_batch.hpp"
#include "alloc/windows/window_remap.hpp"
#include "stream/captures.hpp"
#include "trace/record_event.hpp"

namespace cuvmm {
namespace {

using State = WindowBlock::State;
using Behind = WindowBlock::Behind;

// Few enough that the lock is not held for long.
constexpr std::size_t pieces_a_batch = 512;

constexpr int plans_at_most = 3;

std::uint64_t in_ns(Duration duration) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(duration).count());
}

void sleep_a_little() {
  constexpr timespec little{.tv_sec = 0, .tv_nsec = 20'000};
  ::nanosleep(&little, nullptr);
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
    sleep_a_little();
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
Windows::Plan Windows::plan_compaction(std::size_t chunks) const {
  Colouring colouring{granule_};
  std::vector<SharedChunk*> chunk_of;
  std::vector<WindowBlock*> block_of;
  std::vector<std::size_t> first_piece_of;
  for (SharedChunk* chunk : shared_.all()) {
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

  Plan plan;
  for (const Colouring::Index emptied : colouring.emptied()) {
    BatchSource source{chunk_of[emptied], chunk_of[emptied]->id, {}};
    for (std::size_t piece = first_piece_of[emptied]; piece < first_piece_of[emptied + 1];
         ++piece) {
      SharedChunk* const to = chunk_of[colouring.chunk_of(static_cast<Colouring::Index>(piece))];
      source.moves.push_back({block_of[piece], to, to->id});
    }
    plan.sources.push_back(std::move(source));
  }
  return plan;
}

Result<Size> Windows::compact(Size wanted, const Compaction& how) {
  Size freed = 0;
  // Between two batches other threads may take vacant bytes. Plan again for the moves that this
  // spoils.
  for (int plans = 0; freed < wanted && plans < plans_at_most; ++plans) {
    Plan plan;
    {
      const Holding holding{lock_};
      tidy();
      freed += give_up_whole_chunks(wanted - freed);
      if (freed >= wanted) break;
      plan = plan_compaction((wanted - freed + granule_ - 1) / granule_);
    }
    const Size before = freed;
    const Result<void> done = carry_out(plan, how, freed);
    if (!done.ok() && freed < wanted) return done.error();
    if (freed == before) break;
  }
  const Holding holding{lock_};
  tell_of_change();
  return freed;
}

Result<void> Windows::carry_out(Plan& plan, const Compaction& how, Size& freed) {
  auto next = plan.sources.begin();
  while (next != plan.sources.end()) {
    auto batch = std::make_unique<Batch>();
    batch->stream = how.copy.stream;
    for (std::size_t pieces = 0; next != plan.sources.end() && pieces < pieces_a_batch; ++next) {
      pieces += next->moves.size();
      batch->sources.push_back(std::move(*next));
    }
    {
      const Holding holding{lock_};
      begin(*batch);
    }
    const Result<void> submitted = copy(*batch);
    const Result<Copies> copies = wait_for_copies(driver_, batch->stream, how.wait);
    const Holding holding{lock_};
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
void Windows::begin(Batch& batch) {
  std::erase_if(batch.sources, [this](BatchSource& source) { return !begin_one(source); });
  std::erase_if(batch.sources, [this](BatchSource& source) {
    if (find_write_addresses(source)) return false;
    give_up_moves(source);
    return true;
  });
  for (const BatchSource& source : batch.sources) {
    for (const BatchMove& move : source.moves) {
      ++source.chunk->copies;
      ++move.to->copies;
    }
  }
}

bool Windows::can_begin(const BatchSource& source) const {
  const SharedChunk& chunk = *source.chunk;
  if (chunk.id != source.id || !takes_part(chunk) || chunk.in_use != source.moves.size()) {
    return false;
  }
  return std::all_of(source.moves.begin(), source.moves.end(), [&](const BatchMove& move) {
    return move.block->shared == &chunk && may_move(*move.block) && move.to->id == move.to_id &&
           takes_part(*move.to) && move.to->could_be_vacant(chunk.where(*move.block));
  });
}

bool Windows::begin_one(BatchSource& source) {
  if (!can_begin(source)) return false;
  source.chunk->emptying = true;
  shared_.refile(*source.chunk);
  for (BatchMove& move : source.moves) {
    const Stretch where = source.chunk->where(*move.block);
    for (WindowBlock* ready : move.to->pieces_over(where)) {
      if (ready->state == State::Ready) give_up(*ready);
    }
    if (!move.to->is_vacant(where)) {
      give_up_moves(source);
      return false;
    }
    shared_.put(*move.to, *move.block);
    move.block->state = State::Moving;
  }
  return true;
}

// Finds addresses through which to write each target: the window of any block in it. None of those
// windows is unmapped while copies run.
bool Windows::find_write_addresses(BatchSource& source) const {
  return std::all_of(source.moves.begin(), source.moves.end(), [this](BatchMove& move) {
    for (const WindowBlock* piece : move.to->pieces) {
      if (piece->shared != move.to || piece->piece_behind != Behind::Usable) continue;
      move.write_address = piece->placed(granule_).piece_window();
      return true;
    }
    return false;
  });
}

// Undoes begin_one(), before anything was copied.
void Windows::give_up_moves(BatchSource& source) {
  for (const BatchMove& move : source.moves) {
    if (move.block->state == State::Moving) cancel(*move.block, *move.to);
  }
  source.chunk->emptying = false;
  shared_.refile(*source.chunk);
}

Result<void> Windows::copy(const Batch& batch) const {
  for (const BatchSource& source : batch.sources) {
    for (const BatchMove& move : source.moves) {
      const PlacedBlock placed = move.block->placed(granule_);
      const Stretch piece = placed.piece();
      TRY(driver_.check(
          driver_.cuMemcpyDtoDAsync(move.write_address + piece.offset,
                                    placed.piece_window() + piece.offset, piece.size, batch.stream),
          "copy a piece of a block", piece.size));
    }
  }
  return {};
}

// Called when the copies have ended. `copied`: all of them succeeded.
Result<void> Windows::finish(Batch& batch, bool copied, Size& freed) {
  for (const BatchSource& source : batch.sources) {
    for (const BatchMove& move : source.moves) {
      --source.chunk->copies;
      --move.to->copies;
    }
  }
  Result<void> outcome;
  for (BatchSource& source : batch.sources) {
    std::vector<const BatchMove*> wanted;
    for (const BatchMove& move : source.moves) {
      if (copied && outcome.ok() && move.block->state == State::Moving && !move.block->pinned()) {
        wanted.push_back(&move);
      } else {
        cancel(*move.block, *move.to);
      }
    }
    if (!wanted.empty()) outcome = exchange(*source.chunk, wanted);
    if (end_emptying(source)) freed += granule_;
  }
  return outcome;
}

// Maps the chunks that have the copies behind the addresses of the pieces.
Result<void> Windows::exchange(SharedChunk& from, const std::vector<const BatchMove*>& moves) {
  WindowRemap remap{*this};
  for (const BatchMove* move : moves) remap.add_piece(*move->block, move->to->chunk);
  const Result<void> done = remap.commit();
  for (const BatchMove* move : moves) {
    if (move->block->piece_behind != Behind::Usable) adrift_.push_back(move->block);
    if (remap.has_after(*move->block)) {
      finish_move(from, *move);
    } else {
      cancel(*move->block, *move->to);
    }
  }
  return done;
}

void Windows::finish_move(SharedChunk& from, const BatchMove& move) {
  WindowBlock& block = *move.block;
  shared_.end_use(from);
  shared_.take_out(from, block);
  block.shared = move.to;
  block.state = State::Live;
  const Stretch piece = from.where(block);
  ++counters_.compacted_blocks;
  counters_.compacted_bytes += piece.size;
  CUVMM_TRACE(.event = TraceEvent::Compact, .device = static_cast<std::int16_t>(settings_.device),
              .address = block.placed(granule_).piece_window() + piece.offset, .size = piece.size,
              .other = move.to->chunk->handle());
}

// The piece stays where it is, and its target bytes become vacant again.
void Windows::cancel(WindowBlock& block, SharedChunk& target) {
  shared_.end_use(target);
  shared_.take_out(target, block);
  if (std::exchange(block.state, State::Live) != State::Released) return;
  // Freed meanwhile; end_life() has updated the counters.
  const FreeTicket ticket = block.ticket();
  if (ticket.is_for_anyone() || order_.is_done(ticket)) return keep(block);
  cached_.add_pending(block);
}

// Returns whether the chunk has returned to the store.
bool Windows::end_emptying(const BatchSource& source) {
  SharedChunk& chunk = *source.chunk;
  const auto is_gone = [&] { return chunk.id != source.id; };
  if (!is_gone() && chunk.in_use == 0) give_up_pieces(chunk);
  if (!is_gone()) remove_if_vacant(chunk);
  if (is_gone()) {
    ++counters_.compacted_chunks;
    return true;
  }
  chunk.emptying = false;
  shared_.refile(chunk);
  return false;
}

// Ends batches whose copies outlasted their time limit. What they wrote is out of date by now.
void Windows::settle_batches() {
  if (unfinished_.empty()) return;
  const RelaxedCapture relaxed{driver_};
  std::vector<std::unique_ptr<Batch>> still;
  for (auto& batch : unfinished_) {
    if (driver_.cuStreamQuery(batch->stream) == CUDA_SUCCESS) {
      Size freed = 0;
      (void)finish(*batch, false, freed);
    } else {
      still.push_back(std::move(batch));
    }
  }
  unfinished_.swap(still);
}

}  // namespace cuvmm
