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
  WholeCards,      // a job gets whole cards, whatever it asks for
  FixedFractions,  // a part is 1, 2, 3, 4 or 7 sevenths of a card, as on multi-instance devices
  KeptShares,      // the whole request is guaranteed
  LentShares,      // part of the request is guaranteed, the rest borrowed while others can spare it
};

// The memory of a card that is booked for a job.
Size booked_for(const Job& job, Sharing sharing, double guaranteed_part);

// Chooses a job's card and machine: the card with the least room that suffices. Jobs on several
// cards get empty cards of one machine.
class Placement {
 public:
  explicit Placement(unsigned cards);

  std::optional<std::vector<unsigned>> place(const Job& job, Size booked);
  void remove(const std::vector<unsigned>& cards, Size booked);

 private:
  void change(unsigned card, Size free);

  std::vector<Size> free_;                            // by card
  std::set<std::pair<Size, unsigned>> by_room_;       // free, card
  std::vector<unsigned> empty_;                       // empty cards of each machine
  std::set<std::pair<unsigned, unsigned>> by_empty_;  // empty cards, machine
};

}  // namespace cuvmm::cluster
