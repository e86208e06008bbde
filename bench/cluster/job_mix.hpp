// SPDX-License-Identifier: Apache-2.0
// Jobs like those of a published trace, drawn from the distributions of Alibaba's
// cluster-trace-gpu-v2023 (openb_pod_list_default.csv; 7,064 pods that ask for GPUs), which Weng et
// al. describe in "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
// Gradient Descent", USENIX ATC 2023.
#pragma once

#include <cstdint>
#include <random>

#include "base/size.hpp"

namespace cuvmm::cluster {

inline constexpr Size card_memory = 80 * GiB;
inline constexpr unsigned cards_of_machine = 8;

struct Job {
  double arrives = 0;  // seconds
  double runs = 0;     // seconds, if nothing stalls it
  unsigned cards = 1;
  Size asked = 0;  // of each card
};

// Jobs in order of arrival, at a rate at which they ask for `load` times the available memory. The
// same seed gives the same jobs.
class JobMix {
 public:
  JobMix(unsigned cards, double load, std::uint64_t seed);
  Job next();

  // The mean of cards * asked / card_memory * runs.
  static double mean_work();
  static constexpr double longest_run = 86'400;  // cuts off a tail of the trace's 18 weeks

 private:
  double uniform() { return std::uniform_real_distribution<double>{}(random_); }

  const double jobs_per_second_;
  std::mt19937_64 random_;
  double now_ = 0;
};

}  // namespace cuvmm::cluster
