// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "bench/cluster/job_mix.hpp"

namespace cuvmm::cluster {

// How a card is divided among jobs.
enum class Sharing : std::uint8_t {
  WholeCards,      // a job gets whole cards, whatever it asked for
  FixedFractions,  // a part of a card is 1, 2, 3, 4 or 7 sevenths, as of multi-instance devices
  KeptShares,      // what was asked for is guaranteed
  LentShares,      // a part of that is guaranteed, the rest borrowed where others do not need it
};

// How much of a card is booked for a job.
Size booked_for(const Job& job, Sharing sharing, double guaranteed_part);

// Which card of which machine a job gets: the one with the least room that suffices. Jobs on
// several cards get empty ones of one machine.
class Placement {
 public:
  explicit Placement(unsigned cards);

  std::optional<std::vector<unsigned>> place(const Job& job, Size booked);
  void remove(const std::vector<unsigned>& cards, Size booked);

 private:
  void change(unsigned card, Size free);

  std::vector<Size> free_;                            // by card
  std::set<std::pair<Size, unsigned>> by_room_;       // free, card
  std::vector<unsigned> empty_;                       // cards of a machine
  std::set<std::pair<unsigned, unsigned>> by_empty_;  // empty cards, machine
};

}  // namespace cuvmm::cluster
