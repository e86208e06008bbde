// SPDX-License-Identifier: Apache-2.0
#include "node/turns.hpp"

#include <algorithm>

namespace cuvmm::node {

bool meet(const std::set<PlaceId>& a, const std::set<PlaceId>& b) {
  return std::any_of(a.begin(), a.end(), [&](PlaceId place) { return b.contains(place); });
}

GroupTurn* TurnTable::find(const std::string& group) {
  const auto found = std::find_if(turns_.begin(), turns_.end(),
                                  [&](const GroupTurn& turn) { return turn.group == group; });
  return found == turns_.end() ? nullptr : &*found;
}

bool TurnTable::covers(const std::string& group, PlaceId place) const {
  return std::any_of(turns_.begin(), turns_.end(), [&](const GroupTurn& turn) {
    return turn.group == group && turn.places.contains(place);
  });
}

bool TurnTable::extend(const std::string& group, PlaceId place) {
  GroupTurn* const turn = find(group);
  if (turn == nullptr || !holders(place).empty()) return false;
  turn->places.insert(place);
  return true;
}

std::set<std::string> TurnTable::holders(PlaceId place) const {
  std::set<std::string> all;
  for (const GroupTurn& turn : turns_) {
    if (turn.places.contains(place)) all.insert(turn.group);
  }
  return all;
}

std::vector<std::string> TurnTable::start(const std::vector<TurnWish>& wishes, Microseconds now) {
  std::vector<TurnWish> order = wishes;
  for (const TurnWish& wish : order) {
    used_.try_emplace(wish.group, Used{.time = newest_time_});
  }
  std::stable_sort(order.begin(), order.end(), [&](const TurnWish& a, const TurnWish& b) {
    return used_[a.group].time < used_[b.group].time;
  });
  std::set<PlaceId> taken;
  for (const GroupTurn& turn : turns_) taken.insert(turn.places.begin(), turn.places.end());
  std::vector<std::string> started;
  for (const TurnWish& wish : order) {
    if (!meet(wish.places, taken)) {
      Used& used = used_[wish.group];
      // No credit for time in which it wanted no turn.
      used.time = std::max(used.time, newest_time_);
      newest_time_ = used.time;
      turns_.push_back({.group = wish.group,
                        .places = wish.places,
                        .began = now,
                        .counted_until = now,
                        .quantum = quantum_after(used.last_swap, wish.weight),
                        .weight = wish.weight,
                        .has_its_memory_since = {},
                        .may_retry_until = {}});
      started.push_back(wish.group);
    }
    taken.insert(wish.places.begin(), wish.places.end());
  }
  return started;
}

void TurnTable::end(const std::string& group, std::uint32_t weight, Microseconds now) {
  GroupTurn* const turn = find(group);
  if (turn == nullptr) return;
  Used& used = used_[group];
  used.time += std::max<std::uint64_t>(1, (now - turn->counted_until) / weight);
  if (!turn->has_its_memory_since && turn->may_retry_until) {
    used.rests_until = now + std::max(times_.shortest_quantum, now - turn->began);
  }
  turns_.erase(turns_.begin() + (turn - turns_.data()));
}

Microseconds TurnTable::rests_until(const std::string& group) const {
  const auto known = used_.find(group);
  return known == used_.end() ? 0 : known->second.rests_until;
}

void TurnTable::count_until_now(const std::string& group, std::uint32_t weight, Microseconds now) {
  GroupTurn* const turn = find(group);
  if (turn == nullptr) return;
  used_[group].time += (now - turn->counted_until) / weight;
  turn->counted_until = now;
}

void TurnTable::note_outcome(const std::string& group, PlaceId place, Outcome outcome,
                             Microseconds now) {
  GroupTurn* const turn = find(group);
  if (turn == nullptr || !turn->places.contains(place)) return;
  if (outcome == Outcome::Granted) {
    turn->may_retry_until.reset();
  } else if (!turn->may_retry_until) {
    turn->may_retry_until = now + times_.shortest_quantum;
  }
}

void TurnTable::note_waiting(const std::string& group, bool some_wait, Microseconds now) {
  GroupTurn& turn = *find(group);
  turn.some_wait = some_wait;
  if (some_wait || turn.has_its_memory_since || turn.may_retry_until) return;
  Used& used = used_[turn.group];
  used.last_swap = now - turn.began;
  turn.has_its_memory_since = now;
  turn.quantum = quantum_after(used.last_swap, turn.weight);
}

Microseconds TurnTable::quantum_of(const std::string& group, Microseconds usual_swap) const {
  const auto known = used_.find(group);
  const Microseconds last_swap = known == used_.end() ? 0 : known->second.last_swap;
  return quantum_after(std::max(last_swap, usual_swap));
}

void TurnTable::inherit(const std::string& other, const std::string& group) {
  const auto known = used_.find(other);
  if (known == used_.end()) return;
  const Used from = known->second;
  Used& used = used_[group];
  used.time = std::max(used.time, from.time);
  used.last_swap = std::max(used.last_swap, from.last_swap);
}

void TurnTable::forget(const std::string& group) {
  std::erase_if(turns_, [&](const GroupTurn& turn) { return turn.group == group; });
  used_.erase(group);
}

// A group whose turn ends still has its memory, so it waits for no turn, and the next one is never
// its own. So the length of turns, too, follows from the weights. The mean stays as it is, since it
// determines how much time goes into swapping.
Microseconds TurnTable::quantum_after(Microseconds swap, const RelativeWeight& weight) const {
  const auto in_bounds = [&](Microseconds quantum) {
    return std::clamp(quantum, times_.shortest_quantum, times_.longest_quantum);
  };
  return in_bounds(weight.of(in_bounds(swap * times_.quantum_per_swap)));
}

}  // namespace cuvmm::node
