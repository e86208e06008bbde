// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>

#include "replay/policy.hpp"
#include "replay/simulation.hpp"

namespace cuvmm::replay {

// No allocator at all: every request is a cuMemAlloc of the simulated driver, every free a
// cuMemFree. The card's memory is the limit.
class DriverPolicy final : public Policy {
 public:
  explicit DriverPolicy(const Simulation& simulation) : simulation_(simulation) {}

  Result<void> allocate(const ReplayEvent& event) override;
  Result<void> release(const ReplayEvent& event) override;
  PolicyCounters counters() const override;

 private:
  Simulation simulation_;
  std::unordered_map<BlockId, CUdeviceptr> used_;
  std::uint64_t creates_ = 0;
};

}  // namespace cuvmm::replay
