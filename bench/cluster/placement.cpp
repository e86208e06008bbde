// SPDX-License-Identifier: Apache-2.0
#include "bench/cluster/placement.hpp"

#include <array>

namespace cuvmm::cluster {

Size booked_for(const Job& job, Sharing sharing, double guaranteed_part) {
  if (job.asked == card_memory || sharing == Sharing::WholeCards) return card_memory;
  if (sharing == Sharing::KeptShares) return job.asked;
  if (sharing == Sharing::LentShares) {
    return static_cast<Size>(static_cast<double>(job.asked) * guaranteed_part) / MiB * MiB;
  }
  constexpr std::array<Size, 4> sevenths{1, 2, 3, 4};
  for (const Size count : sevenths) {
    if (job.asked <= card_memory / 7 * count) return card_memory / 7 * count;
  }
  return card_memory;
}

Placement::Placement(unsigned cards)
    : free_(cards, card_memory), empty_((cards + cards_of_machine - 1) / cards_of_machine, 0) {
  for (unsigned card = 0; card < cards; ++card) {
    by_room_.insert({card_memory, card});
    ++empty_[card / cards_of_machine];
  }
  for (unsigned machine = 0; machine < empty_.size(); ++machine) {
    by_empty_.insert({empty_[machine], machine});
  }
}

void Placement::change(unsigned card, Size free) {
  const unsigned machine = card / cards_of_machine;
  const bool was_empty = free_[card] == card_memory;
  const bool is_empty = free == card_memory;
  by_room_.erase({free_[card], card});
  by_room_.insert({free, card});
  free_[card] = free;
  if (was_empty == is_empty) return;
  by_empty_.erase({empty_[machine], machine});
  empty_[machine] = is_empty ? empty_[machine] + 1 : empty_[machine] - 1;
  by_empty_.insert({empty_[machine], machine});
}

std::optional<std::vector<unsigned>> Placement::place(const Job& job, Size booked) {
  std::vector<unsigned> cards;
  if (job.cards == 1) {
    const auto found = by_room_.lower_bound({booked, 0});
    if (found == by_room_.end()) return {};
    cards.push_back(found->second);
  } else {
    const auto found = by_empty_.lower_bound({job.cards, 0});
    if (found == by_empty_.end()) return {};
    const unsigned first = found->second * cards_of_machine;
    for (unsigned card = first; cards.size() < job.cards; ++card) {
      if (free_[card] == card_memory) cards.push_back(card);
    }
  }
  for (const unsigned card : cards) change(card, free_[card] - booked);
  return cards;
}

void Placement::remove(const std::vector<unsigned>& cards, Size booked) {
  for (const unsigned card : cards) change(card, free_[card] + booked);
}

}  // namespace cuvmm::cluster
