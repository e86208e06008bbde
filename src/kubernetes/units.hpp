// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/size.hpp"

namespace cuvmm::kubernetes {

// A card of this node. Kubernetes counts its memory in units of 1 GiB.
struct Card {
  std::string uuid;  // "GPU-…", as NVML writes it
  std::uint32_t index = 0;
  std::uint32_t units = 0;
  bool is_healthy = true;
};

constexpr Size bytes_of_unit = GiB;

// The whole units of a card that keeps `reserve` for what no limit counts, as CUDA contexts.
constexpr std::uint32_t units_of(Size memory, Size reserve) {
  return memory <= reserve ? 0 : static_cast<std::uint32_t>((memory - reserve) / bytes_of_unit);
}

// Units of one card, or why there are none.
struct UnitChoice {
  std::vector<std::string> ids;
  std::size_t card = 0;
  std::string refusal;  // names the numbers and the remedy; empty: none
  bool ok() const { return refusal.empty(); }
};

// The units of all cards, by the names that the kubelet knows them by. A container's units are
// always of one card: memory of two cards is no share of either.
class Units {
 public:
  explicit Units(std::vector<Card> cards);

  const std::vector<Card>& cards() const { return cards_; }
  std::size_t count() const { return owner_.size(); }
  std::string id(std::size_t card, std::uint32_t number) const;
  // Returns whether that is news.
  bool set_health(std::size_t card, bool is_healthy);

  // `wanted` of the available units that include `required`, all of one card: of the card that has
  // the fewest units left of the cards where they fit, so that large requests find room.
  UnitChoice prefer(const std::vector<std::string>& available,
                    const std::vector<std::string>& required, int wanted) const;
  // What the kubelet allocated. Refused: no units, unknown or repeated ones, units of several
  // cards, and units of a card that is not healthy.
  UnitChoice check(const std::vector<std::string>& ids) const;

 private:
  std::optional<std::size_t> card_of(const std::string& id) const;

  std::vector<Card> cards_;
  std::unordered_map<std::string, std::size_t> owner_;  // card by unit
};

}  // namespace cuvmm::kubernetes
