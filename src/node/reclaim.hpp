// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "node/books.hpp"

namespace cuvmm::node {

// What a request may take from others.
enum class Right : std::uint8_t {
  Plain,       // caches; cold memory and idle clients of no higher priority, after their stay
  Overcommit,  // caches, cold memory and idle clients; if too much is leased, not for a request
  Turn,        // everything borrowed, also from busy clients, but only if that is enough
  Guarantee,   // everything borrowed, also from busy clients
};

struct OpenReclaim {
  Revision revision = 0;
  ClientId client = 0;
  PlaceId place = 0;
  ReclaimStep step = ReclaimStep::Cache;
  Size bytes = 0;         // still to come
  Size given_so_far = 0;  // by a pause that is still in progress
  Microseconds began = 0;
  Microseconds longest_work = 0;  // of a pause: work that takes longer outlasts a turn
  Microseconds work_within = 0;   // the client waits no longer than that for its work
  Microseconds deadline = 0;
  bool was_deferred = false;
};

// The reclaim requests that have not ended.
class OpenReclaims {
 public:
  // Numbers the request.
  OpenReclaim& open(const OpenReclaim& request);
  const std::vector<OpenReclaim>& all() const { return open_; }
  std::vector<OpenReclaim>& all() { return open_; }
  OpenReclaim* find(ClientId client, Revision revision);
  // Removes and returns the request, which must be open.
  OpenReclaim end(Revision revision);

  Size expected(PlaceId place) const;
  Size expected_of(ClientId client, PlaceId place) const;
  bool has(ClientId client, PlaceId place) const;
  bool is_to_pause(ClientId client, PlaceId place) const;
  // Records bytes that a pause releases before it has ended.
  void note_given(ClientId client, PlaceId place, Size bytes);
  // The oldest pause that the client owes; nullptr if there is none.
  const OpenReclaim* pause_of(ClientId client) const;

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
  std::set<std::string> turn_holders;  // at that place; a Plain request takes only their caches
  Microseconds now = 0;
};

// Plans how much to ask of which clients to end the shortage. Uses the mildest step that
// yields enough in total. Among possible lenders, the lowest priority comes first, then the most
// reclaimable, then the longest idle. A group is paused as a whole, at all its places. If even all
// of it is not enough, a plan for Plain or Turn takes nothing, and any other still takes
// everything.
ReclaimPlan plan_reclaims(const NodeBooks& books, const OpenReclaims& open,
                          const Shortage& shortage);

}  // namespace cuvmm::node
