// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <limits>
#include <unordered_map>
#include <vector>

#include "alloc/arena/live_parts.hpp"

namespace cuvmm::arena {

// Finds chunks that can be emptied, because what is live behind each of their granules of addresses
// fits at the same offsets into other chunks, where nothing is live. Knows nothing of tiles or the
// driver.
//
// A chunk is behind one granule of addresses, or several that share it; a large one is behind
// several, one after another, and none of them shares it. Live bytes only go to chunks of one
// granule.
class SharingPlan {
 public:
  using Index = std::uint32_t;
  static constexpr Index none = std::numeric_limits<Index>::max();

  // A chunk of that many granules' memory.
  Index add_chunk(Size granules);
  // A granule of addresses with this chunk behind it. Granules of one chunk are added together.
  Index add_granule(Index chunk, const LiveParts& live);
  // A chunk of one granule that nothing uses. Only chunks that are larger are emptied into it.
  Index add_spare();

  struct Bounds {
    Size gain = std::numeric_limits<Size>::max();  // enough
    std::size_t moves = std::numeric_limits<std::size_t>::max();
  };
  // Empties chunks until `gain` granules of memory are gained: small chunks first, and of those the
  // ones with the least in them. Breaks a large chunk up with spares even where that alone gains
  // nothing, because what is live in others then fits beside. Returns how many are gained.
  Size empty(const Bounds& bounds);
  // Whether more spares might have gained more.
  bool lacks_spares() const { return lacks_spares_; }

  const std::vector<Index>& emptied() const { return emptied_; }
  // Where the granule's live bytes go; `none`: there are none.
  Index goal(Index granule) const { return granules_[granule].goal; }
  Index first_granule(Index chunk) const { return chunks_[chunk].first; }
  Index end_granule(Index chunk) const { return chunks_[chunk].end; }

 private:
  struct Chunk {
    Size size = 1;  // in granules
    Index first = 0;
    Index end = 0;
    LiveParts live = {};
    Index group = none;
    std::uint32_t received = 0;  // granules that share it only from now on
    bool is_spare = false;
    bool is_emptied = false;
  };
  struct Granule {
    LiveParts live;
    Index goal;
  };

  // Chunks of one granule with the same parts live. May list chunks that have left it. Many chunks
  // look alike, so that few groups need to be looked at.
  struct Group {
    LiveParts live;
    std::vector<Index> chunks;
    bool is_filed = false;
  };

  Size empty_one(Index chunk, int live_parts);
  Index find_goal(const LiveParts& live);
  Index take_spare();
  void put(Index granule, Index chunk);
  void put_back(Index granule);
  void file(Index chunk);
  Index group_with(const LiveParts& live);
  Index last_chunk_of(Index group);

  std::vector<Chunk> chunks_;
  std::vector<Granule> granules_;
  std::vector<Index> spares_;
  std::vector<Index> emptied_;
  bool lacks_spares_ = false;
  std::size_t moves_ = 0;
  std::size_t looks_left_ = 20'000'000;  // some 0.1 s
  std::vector<Group> groups_;
  std::unordered_map<LiveParts, Index, LiveParts::Hash> group_of_;
  // Groups that may have chunks, by how much is live in these.
  std::array<std::vector<Index>, LiveParts::parts + 1> by_count_;
};

}  // namespace cuvmm::arena
