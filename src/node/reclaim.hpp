// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "node/books.hpp"

namespace cuvmm::node {

// What an asker may take from others.
enum class Right : std::uint8_t {
  Plain,       // caches; cold memory and idle clients of no higher priority, unless it is to stay
  Overcommit,  // the same for nobody: there is less than was leased
  Turn,        // all that is borrowed, busy or not
  Guarantee,   // the same
};

struct OpenReclaim {
  Revision revision = 0;
  ClientId client = 0;
  PlaceId place = 0;
  ReclaimStep step = ReclaimStep::Cache;
  Size bytes = 0;
  Microseconds deadline = 0;
  bool was_deferred = false;
};

// The requests that have not ended.
class OpenReclaims {
 public:
  OpenReclaim& open(ClientId client, PlaceId place, ReclaimStep step, Size bytes,
                    Microseconds deadline);
  const std::vector<OpenReclaim>& all() const { return open_; }
  OpenReclaim* find(ClientId client, Revision revision);
  // Takes it off the list.
  OpenReclaim end(Revision revision);

  Size expected(PlaceId place) const;
  Size expected_of(ClientId client, PlaceId place) const;
  bool has(ClientId client, PlaceId place) const;
  bool is_to_pause(ClientId client, PlaceId place) const;

 private:
  Revision last_ = 0;
  std::vector<OpenReclaim> open_;
};

struct PlannedReclaim {
  ClientId client = 0;
  PlaceId place = 0;
  ReclaimStep step = ReclaimStep::Cache;
  Size bytes = 0;
};
using ReclaimPlan = std::vector<PlannedReclaim>;

struct Shortage {
  PlaceId place = 0;
  Size bytes = 0;
  Right right = Right::Plain;
  std::optional<ClientId> asker;
  std::set<std::string> turn_holders;  // at that place: a plain asker leaves them what they use
  Microseconds now = 0;
};

// Whom to ask for what, so that the shortage ends: by the mildest step that is enough over all, and
// of those who could, first the lowest priority, then who has borrowed most, then who has been idle
// longest. A group is paused as a whole, at all its places. Where all of it is not enough: as much
// as there is, and nothing for a plain asker.
ReclaimPlan plan_reclaims(const NodeBooks& books, const OpenReclaims& open,
                          const Shortage& shortage);

}  // namespace cuvmm::node
