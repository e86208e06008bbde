// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "alloc/windows/window_table.hpp"

namespace cuvmm {

// How to move live pieces. The caller guarantees that nothing touches them meanwhile.
struct Compaction {
  CopyBy copy;
  Duration wait{
      1'000'000};  // for the copies of one batch, which take far less on a device that works
};

// Empties chunks that pieces share. While nothing else touches them, live pieces are copied to
// vacant bytes of other chunks, which are already mapped in some window. Then those chunks are
// mapped behind the addresses of the pieces, for all pieces of an emptied chunk together. If that
// fails, they stay where they were.
class WindowCompactor {
 public:
  explicit WindowCompactor(WindowTable& table) : table_(table) {}

  // Moves live pieces until `wanted` bytes of chunks have returned to the store, or no more can.
  // The context must be quiescent. Returns how many bytes it released.
  Result<Size> compact(Size wanted, const Compaction& how);

  // The following are called under the table's lock.
  // Whether a plan shows that compact() can release this many bytes. After a futile plan it does
  // not plan again until much has changed.
  bool is_worthwhile(Size missing);
  // Ends batches whose copies outlasted their time limit, and tidies the table.
  void tidy();
  // Waits for such copies, and forgets them. For the end of the context.
  void abandon();

  // So far.
  struct Counters {
    std::size_t blocks = 0;
    Size bytes = 0;
    std::size_t chunks = 0;  // emptied
  };
  const Counters& counters() const { return counters_; }
  InvariantViolation violation() const;

 private:
  // A piece, and the chunk to which it moves.
  struct Move {
    WindowBlock* block;
    SharedChunk* to;
    SharedChunk::Id to_id;
    CUdeviceptr write_address = 0;  // a granule of addresses through which `to` is written
  };
  // A chunk and all its pieces in use.
  struct Source {
    SharedChunk* chunk;
    SharedChunk::Id id;
    std::vector<Move> moves;
  };
  // The moves whose copies are submitted together.
  struct Batch {
    std::vector<Source> sources;
    CUstream stream = nullptr;
  };
  using Plan = std::vector<Source>;  // cheapest first

  Plan plan(std::size_t chunks) const;
  Result<void> carry_out(Plan& plan, const Compaction& how, Size& freed);
  void begin(Batch& batch);
  bool begin_one(Source& source);
  bool can_begin(const Source& source) const;
  bool find_write_addresses(Source& source) const;
  void give_up_moves(Source& source);
  Result<void> copy(const Batch& batch) const;
  Result<void> finish(Batch& batch, bool copied, Size& freed);
  Result<void> exchange(SharedChunk& from, const std::vector<const Move*>& moves);
  void finish_move(SharedChunk& from, const Move& move);
  void cancel(WindowBlock& block, SharedChunk& target);
  bool end_emptying(const Source& source);
  void settle_batches();

  WindowTable& table_;
  std::vector<std::unique_ptr<Batch>> unfinished_;  // copies that outlasted their time limit
  Counters counters_;
  std::uint64_t worth_while_from_ = 0;  // the value of the table's `changes` at which to plan again
  Size futile_bytes_ = 0;               // compaction for this much or more is futile
};

}  // namespace cuvmm
