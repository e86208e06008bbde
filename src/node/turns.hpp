// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "node/terms.hpp"

namespace cuvmm::node {

bool meet(const std::set<PlaceId>& a, const std::set<PlaceId>& b);

// A group's weight in proportion to the mean of all groups that compete for its places.
struct RelativeWeight {
  std::uint64_t weight = 1;
  std::uint64_t groups = 1;
  std::uint64_t sum = 1;  // of the groups' weights

  Microseconds of(Microseconds time) const { return time * weight * groups / sum; }
};

// A group's turn at these places: meanwhile no other group has one there, and the group may take
// back what others have borrowed.
struct GroupTurn {
  std::string group;
  std::set<PlaceId> places;
  Microseconds began = 0;
  Microseconds counted_until = 0;  // time up to then has been charged to the group
  Microseconds quantum = 0;
  RelativeWeight weight;
  std::optional<Microseconds> has_its_memory_since;  // the quantum starts then
  bool some_wait = true;                             // a member waits for memory at these places
  // Set while the last such request was refused or given up: the turn ends then if nobody asks
  // again, so that a group without its memory does not keep others from theirs.
  std::optional<Microseconds> may_retry_until;

  std::optional<Microseconds> ends_at() const {
    if (has_its_memory_since) return *has_its_memory_since + quantum;
    return some_wait ? std::nullopt : may_retry_until;
  }
};

// A group that waits for a turn on these places.
struct TurnWish {
  std::string group;
  std::set<PlaceId> places;
  RelativeWeight weight;
};

// Decides whose turn it is: the group that has used the least time for its weight is next. A group
// gets all its places at once. While it waits for some of them, groups behind it get none of its
// places, so that no group waits forever.
class TurnTable {
 public:
  explicit TurnTable(const PolicyTimes& times) : times_(times) {}

  const std::vector<GroupTurn>& turns() const { return turns_; }
  GroupTurn* find(const std::string& group);
  bool has_turn(const std::string& group) const {
    return const_cast<TurnTable*>(this)->find(group) != nullptr;
  }
  bool covers(const std::string& group, PlaceId place) const;
  std::set<std::string> holders(PlaceId place) const;

  // Starts all turns that can start now. Returns their groups.
  std::vector<std::string> start(const std::vector<TurnWish>& wishes, Microseconds now);
  // Makes the group's turn cover the place too. False if it has no turn, if the turn covers the
  // place already, or if another group has its turn there.
  bool extend(const std::string& group, PlaceId place);
  void end(const std::string& group, std::uint32_t weight, Microseconds now);
  // When the group may have its next turn. After a turn in which it did not get its memory, it
  // rests for as long as that turn took.
  Microseconds rests_until(const std::string& group) const;
  // Charges the group for its turn so far, before its weight changes. No effect without a turn.
  void count_until_now(const std::string& group, std::uint32_t weight, Microseconds now);
  // What became of a member's request at a place of the group's turn. No effect without a turn.
  enum class Outcome : std::uint8_t { Granted, Failed };
  void note_outcome(const std::string& group, PlaceId place, Outcome outcome, Microseconds now);
  // Whether members wait for memory. If none does and the last request did not fail, the group has
  // all its memory; the time this took determines the length of its turns.
  void note_waiting(const std::string& group, bool some_wait, Microseconds now);
  // The length of a turn in which the group first has to get back all memory that it has now.
  // Assumes that this takes `usual_swap`, or as long as in the group's last turn if that is longer.
  Microseconds quantum_of(const std::string& group, Microseconds usual_swap) const;
  // The group counts as having used at least as much time as the other.
  void inherit(const std::string& other, const std::string& group);
  // Call this once the group has no members.
  void forget(const std::string& group);

 private:
  struct Used {
    std::uint64_t time = 0;  // in microseconds at weight 1
    Microseconds last_swap = 0;
    Microseconds rests_until = 0;
  };
  Microseconds quantum_after(Microseconds swap, const RelativeWeight& weight = {}) const;

  const PolicyTimes times_;
  std::vector<GroupTurn> turns_;
  std::map<std::string, Used> used_;
  std::uint64_t newest_time_ = 0;  // of the group that started last; a new group starts there
};

}  // namespace cuvmm::node
