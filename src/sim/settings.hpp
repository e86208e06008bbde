// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/log.hpp"
#include "base/sim_options.hpp"

namespace cuvmm::sim {

inline constexpr int most_devices = 8;

// The VMM_SIM_* options of this process, read once on first use. A value that does not parse is
// logged once and replaced by its default.
const SimOptions& settings();

inline bool has_backing() {
  return settings().backing == SimBacking::Memory;
}
inline bool is_eager() {
  return settings().order.when == SimWhen::Eager;
}

}  // namespace cuvmm::sim
