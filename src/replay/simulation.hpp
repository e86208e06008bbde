// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cuvmm/sim.h"
#include "driver/driver.hpp"

namespace cuvmm::replay {

// The simulated driver within this process, keeping books without real memory: one card, whose
// context is current on this thread. A process has one, which lasts until the process ends.
class Simulation {
 public:
  // `path` must name a simulated driver; any other library is refused without calling it.
  static Result<Simulation> start(const std::string& path, Size card_memory);

  const Driver& driver() const { return *driver_; }
  Size card_memory() const { return card_memory_; }

  // All count from start().
  Size physical_peak() const;
  double modelled_us() const { return modelled_us_() - modelled_us_before_; }
  std::uint64_t calls(const char* name) const { return calls_(name); }

 private:
  Simulation() = default;

  std::shared_ptr<const Driver> driver_;
  Size card_memory_ = 0;
  decltype(&cuvmm_sim_read_counters) read_counters_ = nullptr;
  decltype(&cuvmm_sim_modelled_microseconds) modelled_us_ = nullptr;
  decltype(&cuvmm_sim_calls) calls_ = nullptr;
  double modelled_us_before_ = 0;
};

}  // namespace cuvmm::replay
