// SPDX-License-Identifier: Apache-2.0
// Which groups need a turn, and when turns start and end.
#include "node/policy.hpp"

namespace cuvmm::node {

bool NodePolicy::turns_are_withheld(const std::string& group) const {
  const std::set<PlaceId> places = places_of(group);
  return std::any_of(places.begin(), places.end(), [&](PlaceId place) {
    return books_.find_place(place)->turns_withheld_until > now_;
  });
}

// When a suspension of turns at the group's places ends.
Microseconds NodePolicy::no_turns_before(const std::string& group) const {
  Microseconds latest = 0;
  for (const PlaceId place : places_of(group)) {
    latest = std::max(latest, books_.find_place(place)->turns_suspended_until);
  }
  return latest;
}

Microseconds NodePolicy::earliest_turn_for(const Ask& ask) const {
  const std::string& group = group_of(ask);
  return std::max({ask.no_turn_before, no_turns_before(group), turns_.rests_until(group)});
}

const std::string& NodePolicy::group_of(const Ask& ask) const {
  return books_.find_client(ask.asked.client)->group;
}

// A client that waits for memory is not idle, whatever it reported.
bool NodePolicy::is_idle(const std::string& group) const {
  return books_.is_idle(group) && std::none_of(asks_.begin(), asks_.end(), [&](const Ask& ask) {
           return group_of(ask) == group;
         });
}

// Includes places where memory of members has been paused away, since they come back for it.
std::set<PlaceId> NodePolicy::places_of(const std::string& group) const {
  std::set<PlaceId> places;
  const auto add = [&](PlaceId place) {
    if (books_.find_place(place)->kind == PlaceKind::Device) places.insert(place);
  };
  for (const ClientId id : books_.members(group)) {
    for (const auto& [place, holding] : books_.find_client(id)->at) {
      if (holding.leased != 0 || holding.is_away) add(place);
    }
  }
  for (const Ask& ask : asks_) {
    if (group_of(ask) == group) add(ask.asked.place);
  }
  return places;
}

bool NodePolicy::is_away(ClientId client) const {
  const auto& holdings = books_.find_client(client)->at;
  return reclaims_.pause_of(client) != nullptr ||
         std::any_of(holdings.begin(), holdings.end(),
                     [](const auto& holding) { return holding.second.is_away; });
}

// A group that was paused for another comes back as a whole, in a turn of its own. If one member
// came back into free memory, its kernels would spin for the others, and it could not be stopped
// for the group that has the turn.
bool NodePolicy::comes_back_in_turn(const Ask& ask) const {
  const std::string& group = group_of(ask);
  const std::vector<ClientId> members = books_.members(group);
  const bool is_device = books_.find_place(ask.asked.place)->kind == PlaceKind::Device;
  if (members.size() < 2 || !is_device || right_of(ask) != Right::Plain) return false;
  const std::set<PlaceId> places = places_of(group);
  const auto runs = [&](ClientId id) {
    const auto& holdings = books_.find_client(id)->at;
    return !is_away(id) && std::any_of(holdings.begin(), holdings.end(), [&](const auto& holding) {
      return places.contains(holding.first) && holding.second.leased != 0;
    });
  };
  if (!is_away(ask.asked.client) || std::any_of(members.begin(), members.end(), runs)) return false;
  const auto is_another_there = [&](PlaceId place) {
    const bool asks = std::any_of(asks_.begin(), asks_.end(), [&](const Ask& other) {
      return other.asked.place == place && group_of(other) != group;
    });
    return asks ||
           std::any_of(books_.clients().begin(), books_.clients().end(), [&](const auto& one) {
             return one.second.group != group && one.second.leased(place) != 0;
           });
  };
  return !turns_are_withheld(group) && std::any_of(places.begin(), places.end(), is_another_there);
}

std::uint32_t NodePolicy::weight_of(const std::string& group) const {
  std::uint32_t weight = 1;
  for (const ClientId id : books_.members(group)) {
    weight = std::max(weight, books_.find_client(id)->terms.weight);
  }
  return weight;
}

RelativeWeight NodePolicy::relative_weight_of(const std::string& group,
                                              const std::set<PlaceId>& places) const {
  const std::uint32_t weight = weight_of(group);
  RelativeWeight found{.weight = weight, .groups = 1, .sum = weight};
  std::set<std::string> known{group};
  for (const auto& [id, client] : books_.clients()) {
    if (!known.insert(client.group).second || is_idle(client.group)) continue;
    if (!meet(places_of(client.group), places)) continue;
    ++found.groups;
    found.sum += weight_of(client.group);
  }
  return found;
}

std::vector<TurnWish> NodePolicy::wishes() const {
  std::vector<TurnWish> all;
  std::set<std::string> known;
  for (const Ask& ask : asks_) {
    const std::string& group = group_of(ask);
    const bool wants_one = ask.waits_for_turn && earliest_turn_for(ask) <= now_;
    if (!wants_one || turns_.has_turn(group) || !known.insert(group).second) continue;
    const std::set<PlaceId> places = places_of(group);
    all.push_back({group, places, relative_weight_of(group, places)});
  }
  return all;
}

void NodePolicy::note_who_waits_in_its_turn() {
  for (const GroupTurn& turn : std::vector<GroupTurn>{turns_.turns()}) {
    const bool waits =
        is_returning(turn.group) || std::any_of(asks_.begin(), asks_.end(), [&](const Ask& ask) {
          return group_of(ask) == turn.group && turn.places.contains(ask.asked.place);
        });
    turns_.note_waiting(turn.group, waits, now_);
  }
}

bool NodePolicy::end_turns() {
  bool changes = false;
  for (const GroupTurn& turn : std::vector<GroupTurn>{turns_.turns()}) {
    const bool is_over = turn.ends_at().has_value() && *turn.ends_at() <= now_;
    if (!is_over && !is_idle(turn.group)) continue;
    end_turn(turn.group);
    changes = true;
  }
  return changes;
}

void NodePolicy::end_turn(const std::string& group) {
  turns_.end(group, weight_of(group), now_);
  for (const ClientId id : books_.members(group)) decisions_.emplace_back(TurnEnded{id});
}

// If a member turns out to need another place, the turn extends there, unless another group has its
// turn there.
bool NodePolicy::extend_turns() {
  bool changes = false;
  for (const Ask& ask : asks_) {
    const NodePlace& place = *books_.find_place(ask.asked.place);
    const bool has_turns = place.kind == PlaceKind::Device && place.turns_suspended_until <= now_ &&
                           place.turns_withheld_until <= now_;
    if (has_turns && turns_.extend(group_of(ask), ask.asked.place)) changes = true;
  }
  return changes;
}

bool NodePolicy::start_turns() {
  const std::vector<std::string> started = turns_.start(wishes(), now_);
  for (const std::string& group : started) {
    for (Ask& ask : asks_) {
      if (group_of(ask) == group) ask.waits_for_turn = false;
    }
    for (const ClientId id : books_.members(group)) {
      decisions_.emplace_back(TurnStarted{id, turns_.find(group)->quantum});
    }
  }
  return !started.empty();
}

}  // namespace cuvmm::node
