// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "alloc/arena/gap_fill.hpp"
#include "alloc/arena/layout.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm::arena {

// Chunks that come into an arena, go from it, or move within, all at once or none. The tiles
// follow what the mapping says, also where the driver refused even the undoing.
//
// The caller that takes a chunk out knows that no work uses it any more.
class Rearrangement {
 public:
  Rearrangement(Layout& layout, Mapping& mapping, const AccessSet& access, int device)
      : layout_(layout), mapping_(mapping), access_(access), device_(device) {}

  // What comes is for a block that is carved from it next, and joins its neighbours after that
  // (Layout::join_beside). Else what another stream has pending would have the rest of it.
  void is_for_a_block() { is_for_a_block_ = true; }

  // A chunk of nobody's.
  void bring(const GapFill::Spot& to, ChunkRef chunk);
  // A chunk that lies wholly within a free range.
  void move(const GapFill::Spot& to, Range& from, const MappedChunk& chunk);
  // The same goes to nobody, or out of what is broken.
  void release(Range& from, const MappedChunk& chunk);

  bool is_empty() const { return coming_.empty() && going_.empty(); }
  Result<void> commit();

  // After a commit that succeeded.
  Range& lowest_that_came() const { return *lowest_; }
  Size moved_bytes() const { return moved_bytes_; }
  std::size_t moved_count() const { return moved_count_; }
  Size gone_bytes() const { return gone_bytes_; }

 private:
  struct Coming {
    Range* hole;
    Size offset;
    ChunkRef chunk;
    Size from;  // offset where it lay; nowhere: nobody's
    Stretch where() const { return {offset, chunk->size()}; }
  };
  struct Going {
    Range* range;
    Stretch stretch;
    bool moves;
    Stretch where() const { return stretch; }
  };
  static constexpr Size nowhere = unlimited;

  // Tiles of their own for what comes and goes, the last in address order first: a cut leaves the
  // record to what is below.
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
