// SPDX-License-Identifier: Apache-2.0
#include "bench/cluster/job_mix.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace cuvmm::cluster {
namespace {

constexpr std::size_t steps = 20;
using Quantiles = std::array<double, steps>;  // at 2.5%, 7.5%, …, 97.5%

// Thousandths of a card, for the 3,078 pods that ask for part of a card.
constexpr Quantiles part_of_card{160, 230, 320, 320, 370, 470, 470, 470, 470, 470,
                                 550, 650, 650, 810, 810, 810, 810, 810, 810, 810};
// Seconds from scheduling to deletion.
constexpr Quantiles runs_on_part{25,  47,  65,  89,   124,  154,  200,  247,  339,   464,
                                 596, 810, 947, 1157, 1496, 2368, 3661, 6486, 12549, 40513};
constexpr Quantiles runs_on_card{45,  66,   107,  154,  197,  224,  286,  379,  531,  661,
                                 842, 1082, 1344, 1698, 2160, 2941, 3879, 4663, 8324, 37123};
constexpr Quantiles runs_on_cards{23,  37,   62,   118,  150,  217,   425,   450,   521,    553,
                                  768, 1071, 2321, 2933, 4319, 13054, 23925, 61202, 101998, 977323};

// A demand, and the number of the trace's pods that have it.
struct Demand {
  unsigned pods;
  unsigned cards;  // 0: part of a card
  const Quantiles* runs;
};
constexpr std::array demands{Demand{3078, 0, &runs_on_part}, Demand{3911, 1, &runs_on_card},
                             Demand{16, 2, &runs_on_cards}, Demand{15, 4, &runs_on_cards},
                             Demand{44, 8, &runs_on_cards}};
constexpr unsigned all_pods = 7064;

double mean(const Quantiles& values, double most) {
  double sum = 0;
  for (const double value : values) sum += std::min(value, most);
  return sum / steps;
}

}  // namespace

JobMix::JobMix(unsigned cards, double load, std::uint64_t seed)
    : jobs_per_second_(load * cards / mean_work()), random_(seed) {}

double JobMix::mean_work() {
  double sum = 0;
  for (const Demand& demand : demands) {
    const double size = demand.cards == 0 ? mean(part_of_card, 1000) / 1000 : demand.cards;
    sum += demand.pods * size * mean(*demand.runs, longest_run);
  }
  return sum / all_pods;
}

Job JobMix::next() {
  now_ += -std::log(1 - uniform()) / jobs_per_second_;
  const auto draw = [this](const Quantiles& values) {
    return values[std::min(static_cast<std::size_t>(uniform() * steps), steps - 1)];
  };
  double pod = uniform() * all_pods;
  const Demand* demand = &demands.back();
  for (const Demand& one : demands) {
    demand = &one;
    if (pod < one.pods) break;
    pod -= one.pods;
  }
  Job job{.arrives = now_, .cards = std::max(demand->cards, 1U), .asked = card_memory};
  job.runs = std::min(draw(*demand->runs), longest_run);
  if (demand->cards == 0) {
    job.asked = static_cast<Size>(draw(part_of_card)) * (card_memory / 1000) / MiB * MiB;
  }
  return job;
}

}  // namespace cuvmm::cluster
