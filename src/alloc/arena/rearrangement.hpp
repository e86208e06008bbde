// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "alloc/arena/gap_fill.hpp"
#include "alloc/arena/layout.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm::arena {

// Chunks that enter an arena, leave it, or move within it, as one transaction. The tiles follow the
// mapping, even if the driver refuses to undo a failed change.
//
// The caller guarantees that no work uses a chunk that moves or leaves.
class Rearrangement {
 public:
  Rearrangement(Layout& layout, Mapping& mapping, const AccessSet& access, int device)
      : layout_(layout), mapping_(mapping), access_(access), device_(device) {}

  // Call if the caller carves a block from the arriving chunks next. They join their neighbours
  // only after that (Layout::join_beside): otherwise the rest of them would join memory that other
  // streams have pending.
  void is_for_a_block() { is_for_a_block_ = true; }

  // Brings in a chunk that is not mapped in the arena.
  void bring(const GapFill::Spot& to, ChunkRef chunk);
  // Moves a chunk that lies wholly within a free range.
  void move(const GapFill::Spot& to, Range& from, const MappedChunk& chunk);
  // Unmaps such a chunk, or one in a broken range.
  void release(Range& from, const MappedChunk& chunk);

  bool is_empty() const { return coming_.empty() && going_.empty(); }
  Result<void> commit();

  // Valid after a successful commit.
  Range& lowest_that_came() const { return *lowest_; }
  Size moved_bytes() const { return moved_bytes_; }
  std::size_t moved_count() const { return moved_count_; }
  Size gone_bytes() const { return gone_bytes_; }

 private:
  struct Coming {
    Range* hole;
    Size offset;
    ChunkRef chunk;
    Size from;  // its old offset; `nowhere` if it was not mapped
    Stretch where() const { return {offset, chunk->size()}; }
  };
  struct Going {
    Range* range;
    Stretch stretch;
    bool moves;
    Stretch where() const { return stretch; }
  };
  static constexpr Size nowhere = unlimited;

  // Cuts tiles for the chunks that come and go, in descending address order: a cut leaves the
  // record with the lower part.
  void cut_tiles();
  void follow(Range& tile);
  enum class Joining : std::uint8_t { Now, Later };
  void follow_all(Joining joining);
  void record_events() const;

  Layout& layout_;
  Mapping& mapping_;
  const AccessSet access_;
  const int device_;
  std::vector<Coming> coming_;
  std::vector<Going> going_;
  bool is_for_a_block_ = false;
  Range* lowest_ = nullptr;
  Size moved_bytes_ = 0;
  std::size_t moved_count_ = 0;
  Size gone_bytes_ = 0;
};

}  // namespace cuvmm::arena
