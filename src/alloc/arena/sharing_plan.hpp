// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "alloc/arena/live_parts.hpp"

namespace cuvmm::arena {

// Finds chunks that can be emptied, because the live bytes behind each of their granules of
// addresses fit at the same offsets into vacant parts of other chunks. Knows nothing of tiles or
// the driver.
//
// A chunk of one granule backs one granule of addresses, or several that share it. A large chunk
// backs several consecutive granules, and none of them shares it. Live bytes only go to chunks of
// one granule.
//
// Call empty() or consolidate() once, then settle() before calling either again.
class SharingPlan {
 public:
  using Index = std::uint32_t;
  static constexpr Index none = std::numeric_limits<Index>::max();

  SharingPlan();

  // A chunk of that many granules' memory.
  Index add_chunk(Size granules);
  // Adds a layout: the windows into which some chunks are cut. Returns the windows' numbers.
  [[gnu::cold]] std::vector<Index> add_layout(const std::vector<LiveParts>& windows);
  static constexpr Index whole = 0;  // the window that is all of a chunk
  // Adds a granule of addresses that is backed by that window of the chunk.
  Index add_granule(Index chunk, const LiveParts& live, Index window = whole);
  // A chunk of one granule that nothing uses. Only chunks that are larger are emptied into it.
  Index add_spare();

  struct Bounds {
    Size gain = std::numeric_limits<Size>::max();  // enough
    std::size_t moves = std::numeric_limits<std::size_t>::max();
  };
  // Empties chunks until `gain` granules of memory are gained: small chunks first, and of those the
  // ones with the least in them. Breaks a large chunk up with spares even where that alone gains
  // nothing, because the spares then have room for live bytes of other chunks. Returns how many are
  // gained.
  Size empty(const Bounds& bounds);
  // Whether more spares might have gained more.
  bool lacks_spares() const { return lacks_spares_; }
  // Moves granules from shared chunks to fuller ones, so that others fit where they were. Gains
  // nothing by itself. At least one granule of each chunk stays. Returns how many move.
  std::size_t consolidate(std::size_t most_moves = std::numeric_limits<std::size_t>::max());
  // Treats everything that was planned so far as done.
  void settle();

  const std::vector<Index>& emptied() const { return emptied_; }
  bool is_emptied(Index chunk) const { return chunks_[chunk].is_emptied; }
  // The granules whose live bytes go to another chunk.
  const std::vector<Index>& moved() const { return moved_; }
  // The chunk that they go to; `none`: they stay.
  Index goal(Index granule) const { return granules_[granule].goal; }
  Index home(Index granule) const { return granules_[granule].home; }

 private:
  struct Chunk {
    Size size = 1;          // in granules
    Index granules = none;  // the first one
    LiveParts live = {};
    LiveParts received = {};
    LiveParts gone = {};         // of what is live: to other chunks, by consolidate()
    std::uint32_t arrivals = 0;  // granules that share it only from now on
    bool is_spare = false;
    bool is_emptied = false;
  };
  struct Granule {
    LiveParts live;
    Index home;
    Index window;
    Index goal = none;
    Index next = none;  // of the same chunk
  };

  // The chunks of one granule in which the same parts of a window are live. The window is one of
  // their layout's, or the whole chunk. May list chunks that have left the group. Many chunks look
  // alike, so a search examines few groups.
  struct Group {
    LiveParts live;
    Index window;
    std::vector<Index> chunks = {};
    Index next = none;  // of the groups with as much live
    bool is_filed = false;
  };
  struct Window {
    LiveParts parts;
    int size;
    std::size_t groups = 0;           // where they begin in by_count_
    std::vector<Index> layouts = {};  // that have it
    std::uint64_t last_filing = 0;
  };
  struct GroupHash {
    std::size_t operator()(const std::pair<LiveParts, Index>& group) const {
      return LiveParts::Hash{}(group.first) + group.second;
    }
  };

  std::vector<Index> file_all();
  Size empty_one(Index chunk);
  Index find_goal(const Granule& granule);
  Index find_goal(const LiveParts& live, Index window, std::size_t& looks);
  Index take_spare();
  void put(Index granule, Index chunk);
  void put_back(Index granule);
  Index window_with(const LiveParts& parts);
  void file(Index chunk, const LiveParts& changed);
  void file_in(Index window, Index chunk, const LiveParts& changed);
  Index last_chunk_of(Group& group);
  int live_parts(const Chunk& chunk) const;
  static bool is_unused(const Chunk& chunk) { return chunk.is_spare && chunk.arrivals == 0; }
  // The first group with that many parts of the window live.
  Index& groups_with(Index window, int count) {
    return by_count_[windows_[window].groups + static_cast<std::size_t>(count)];
  }

  std::vector<Chunk> chunks_;
  std::vector<Granule> granules_;
  std::vector<Window> windows_;
  std::unordered_map<LiveParts, Index, LiveParts::Hash> window_of_;
  std::vector<std::vector<Index>> layouts_;  // their windows
  std::uint64_t filings_ = 0;
  std::vector<Index> spares_;
  std::vector<Index> emptied_;
  std::vector<Index> moved_;
  bool lacks_spares_ = false;
  std::size_t looks_left_ = 20'000'000;  // at groups of whole chunks; some 0.1 s
  std::vector<Group> groups_;
  std::unordered_map<std::pair<LiveParts, Index>, Index, GroupHash> group_of_;
  std::vector<Index> by_count_;  // groups that may have chunks
};

}  // namespace cuvmm::arena
