// SPDX-License-Identifier: Apache-2.0
#include "kubernetes/units.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <unordered_set>
#include <utility>

namespace cuvmm::kubernetes {
namespace {

UnitChoice refused(std::string why) {
  return {.ids = {}, .card = 0, .refusal = std::move(why)};
}

}  // namespace

Units::Units(std::vector<Card> cards) : cards_(std::move(cards)) {
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    for (std::uint32_t number = 0; number < cards_[card].units; ++number) {
      owner_.emplace(id(card, number), card);
    }
  }
}

std::string Units::id(std::size_t card, std::uint32_t number) const {
  std::array<char, 16> digits{};  // of fixed length, so that IDs sort like numbers
  std::snprintf(digits.data(), digits.size(), "-%05u", unsigned{number});
  return cards_[card].uuid + digits.data();
}

bool Units::set_health(std::size_t card, bool is_healthy) {
  return std::exchange(cards_[card].is_healthy, is_healthy) != is_healthy;
}

std::optional<std::size_t> Units::card_of(const std::string& id) const {
  const auto found = owner_.find(id);
  if (found == owner_.end()) return {};
  return found->second;
}

UnitChoice Units::prefer(const std::vector<std::string>& available,
                         const std::vector<std::string>& required, int wanted) const {
  if (wanted <= 0) return refused("a request for " + std::to_string(wanted) + " units");
  const auto size = static_cast<std::size_t>(wanted);
  std::vector<std::set<std::string>> free(cards_.size());
  for (const std::string& unit : available) {
    if (const auto card = card_of(unit)) free[*card].insert(unit);
  }
  UnitChoice choice;
  if (!required.empty()) {
    choice = check(required);
    if (!choice.ok()) return choice;
    if (choice.ids.size() > size) return refused("more units are required than requested");
  } else {
    choice.card = cards_.size();
    for (std::size_t card = 0; card < cards_.size(); ++card) {
      const bool fits = free[card].size() >= size && cards_[card].is_healthy;
      if (!fits) continue;
      if (choice.card == cards_.size() || free[card].size() < free[choice.card].size()) {
        choice.card = card;
      }
    }
  }
  std::size_t most = 0;
  for (const auto& of_card : free) most = std::max(most, of_card.size());
  const auto none_fits = [&] {
    return refused("no card has " + std::to_string(wanted) +
                   " units free: the most free on one is " + std::to_string(most) +
                   ". A container's memory comes from one card; ask for less");
  };
  if (choice.card == cards_.size()) return none_fits();
  const std::unordered_set<std::string> chosen(choice.ids.begin(), choice.ids.end());
  for (const std::string& unit : free[choice.card]) {
    if (choice.ids.size() == size) break;
    if (!chosen.contains(unit)) choice.ids.push_back(unit);
  }
  return choice.ids.size() == size ? choice : none_fits();
}

UnitChoice Units::check(const std::vector<std::string>& ids) const {
  if (ids.empty()) return refused("a request for no units");
  UnitChoice choice{.ids = ids, .card = cards_.size(), .refusal = {}};
  std::unordered_set<std::string> seen;
  std::set<std::size_t> spread;
  for (const std::string& unit : ids) {
    const auto card = card_of(unit);
    if (!card) return refused("unit '" + unit + "' is not of this node");
    if (!seen.insert(unit).second) return refused("unit '" + unit + "' is requested twice");
    spread.insert(*card);
    choice.card = *card;
  }
  if (spread.size() > 1) {
    return refused(std::to_string(ids.size()) + " units are spread over " +
                   std::to_string(spread.size()) +
                   " cards. A container's memory comes from one card; ask for less");
  }
  if (!cards_[choice.card].is_healthy) {
    return refused("card " + cards_[choice.card].uuid + " does not answer");
  }
  return choice;
}

}  // namespace cuvmm::kubernetes
