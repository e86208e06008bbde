// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>

#include "pool/elastic_pool.hpp"

namespace cuvmm {

// The plan of a compaction. Until all of it has been carried out, no currently allocated byte is
// overwritten: moves go to bytes that are free now, and the bytes they leave stay taken in `after`.
struct ElasticPool::CompactionPlan {
  struct Join {
    Size granule;
    Size with;  // the granule whose chunk it gets
  };

  explicit CompactionPlan(const FreeBytes& now) : after(now) {}
  bool is_empty() const { return moves.empty() && joins.empty() && separated.empty(); }

  FreeBytes after;
  std::vector<Move> moves;
  std::set<Size> emptied;
  std::set<Size> receives;           // destination granules of moves
  Granules separated;                // granules that get a chunk of their own again
  std::vector<ChunkRef> own_chunks;  // for `separated`, in its order
  std::vector<Join> joins;
};

// Free bytes in mapped granules, to which movable allocations may move.
class RoomInGranules {
 public:
  RoomInGranules(const FreeBytes& free, Size granule)
      : free_(free), granule_(granule), room_(free.capacity(), FreeBytes::Begin::AllTaken) {}

  void open(Size at) {
    for_free_in(at, [&](Stretch free) { room_.give(free); });
  }
  // Withdraws the granule's remaining room. Bytes already taken from it stay taken.
  void close(Size at) {
    for (const Stretch& free : room_.free_in({at * granule_, granule_})) room_.take(free);
  }
  std::optional<Size> take(Size size) {
    const std::optional<Size> found = room_.find(size, alignment);
    if (found) room_.take({*found, size});
    return found;
  }
  void give(Stretch stretch) { room_.give(stretch); }

 private:
  template <class Visit>
  void for_free_in(Size at, Visit visit) {
    for (const Stretch& free : free_.free_in({at * granule_, granule_})) visit(free);
  }
  static constexpr Size alignment = 512;

  const FreeBytes& free_;
  const Size granule_;
  FreeBytes room_;
};

}  // namespace cuvmm
