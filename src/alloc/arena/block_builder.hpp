// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <vector>

#include "alloc/arena/arena_state.hpp"
#include "alloc/arena/build.hpp"
#include "alloc/arena/chunk_supply.hpp"
#include "alloc/arena/gap_fill.hpp"

namespace cuvmm::arena {

// Builds a block if no free range is large enough: with new chunks, with chunks that move, or with
// memory after a wait for its pending work.
class BlockBuilder {
 public:
  // `arena`: see ChunkSupply.
  BlockBuilder(ArenaState& state, ReclaimClient& arena) : state_(state), supply_(state, arena) {}

  Result<Block*> build(Build& build);
  // Under the lock. `chunks`: bytes of chunks available besides the arena's own.
  Error out_of_memory(Size asked, Error refusal, Size chunks) const;

  std::uint64_t waits() const { return waits_; }  // under the lock
  std::uint64_t follows() const { return follows_.load(std::memory_order_relaxed); }

 private:
  // Under the lock: nullptr if chunks are missing.
  Result<Block*> try_to_build(Build& build);
  Result<Block*> build_in_stripes(Build& build);
  Result<Block*> build_at(const AllocationSpan& span, Build& build);
  // Where the block goes, in a place for several.
  Stretch place_in(const Stretch& where, const Build& build);
  bool holds_pending_of_others(const AllocationSpan& span, StreamId stream) const;
  void move_into(const AllocationSpan& span, ResidencyFilter reach, GapFill& fill,
                 Rearrangement& change);
  bool may_move(const Build& build) const;
  ResidencyFilter further(const Build& build) const;
  bool is_hopeless(Size size) const;
  bool must_go_far(const Build& build) const;
  bool is_waiting_futile(const Build& build) const;
  std::vector<FreeTicket> frees_to_follow(const Build& build) const;

  // Not under the lock.
  bool follow(const std::vector<FreeTicket>& frees, StreamId stream);
  bool wait_for_pending(Build& build);
  bool compact_for(Build& build);

  ArenaState& state_;
  ChunkSupply supply_;
  BuildTurns turns_;         // under the arena's lock
  std::uint64_t waits_ = 0;  // the same
  std::atomic<std::uint64_t> follows_{0};
};

}  // namespace cuvmm::arena
