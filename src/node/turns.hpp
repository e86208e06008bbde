// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "node/terms.hpp"

namespace cuvmm::node {

// A group's turn on places that it has to itself meanwhile.
struct GroupTurn {
  std::string group;
  std::set<PlaceId> places;
  Microseconds began = 0;
  Microseconds counted_until = 0;  // the time since then is not in the group's account yet
  Microseconds quantum = 0;
  std::optional<Microseconds> has_its_memory_since;  // from when the quantum counts

  std::optional<Microseconds> ends_at() const {
    if (!has_its_memory_since) return {};
    return *has_its_memory_since + quantum;
  }
};

// A group that waits for a turn on these places.
struct TurnWish {
  std::string group;
  std::set<PlaceId> places;
  std::uint32_t weight = 1;
};

// Whose turn it is. Each group has used so much time by its weight; who has used least is next. A
// group gets all its places at once; while it waits for some of them, nobody behind it gets those
// it could have, so that none waits for ever.
class TurnTable {
 public:
  explicit TurnTable(const PolicyTimes& times) : times_(times) {}

  const std::vector<GroupTurn>& turns() const { return turns_; }
  GroupTurn* find(const std::string& group);
  bool has_turn(const std::string& group) const {
    return const_cast<TurnTable*>(this)->find(group) != nullptr;
  }
  std::set<std::string> holders(PlaceId place) const;

  // Starts what can be started, and returns the groups.
  std::vector<std::string> start(const std::vector<TurnWish>& wishes, Microseconds now);
  void end(const std::string& group, std::uint32_t weight, Microseconds now);
  // Its weight is about to change; nothing where it has no turn.
  void count_until_now(const std::string& group, std::uint32_t weight, Microseconds now);
  // The group has all that it asked for: how long that took decides how long its turns are.
  void has_its_memory(GroupTurn& turn, Microseconds now);
  // The group has no members any more.
  void forget(const std::string& group);

 private:
  struct Used {
    std::uint64_t time = 0;  // in microseconds, by weight 1
    Microseconds last_swap = 0;
  };
  Microseconds quantum_of(const Used& used) const;

  const PolicyTimes times_;
  std::vector<GroupTurn> turns_;
  std::map<std::string, Used> used_;
  std::uint64_t newest_time_ = 0;  // of those who began last: who comes anew begins there
};

}  // namespace cuvmm::node
