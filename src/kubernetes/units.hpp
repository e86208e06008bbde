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

// The whole units of a card, less a reserve for memory that no limit counts, such as CUDA contexts.
constexpr std::uint32_t units_of(Size memory, Size reserve) {
  return memory <= reserve ? 0 : static_cast<std::uint32_t>((memory - reserve) / bytes_of_unit);
}

// Units of one card, or the reason for a refusal.
struct UnitChoice {
  std::vector<std::string> ids;
  std::size_t card = 0;
  std::string refusal;  // names the numbers and the remedy; empty: granted
  bool ok() const { return refusal.empty(); }
};

// The units of all cards, by the IDs that the kubelet uses. A container's units always belong to
// one card, since memory of two cards is not a share of either.
class Units {
 public:
  explicit Units(std::vector<Card> cards);

  const std::vector<Card>& cards() const { return cards_; }
  std::size_t count() const { return owner_.size(); }
  std::string id(std::size_t card, std::uint32_t number) const;
  // Returns whether this is a change.
  bool set_health(std::size_t card, bool is_healthy);

  // Chooses `wanted` of the available units, including `required`, all from one card. Of the cards
  // where they fit, it takes the one with the fewest units left, so that large requests find room.
  UnitChoice prefer(const std::vector<std::string>& available,
                    const std::vector<std::string>& required, int wanted) const;
  // Checks the kubelet's allocation. Refuses an empty list, unknown or repeated units, units of
  // several cards, and units of an unhealthy card.
  UnitChoice check(const std::vector<std::string>& ids) const;

 private:
  std::optional<std::size_t> card_of(const std::string& id) const;

  std::vector<Card> cards_;
  std::unordered_map<std::string, std::size_t> owner_;  // the card of each unit
};

}  // namespace cuvmm::kubernetes
