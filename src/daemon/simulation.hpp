// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "daemon/devices.hpp"

namespace cuvmm::daemon {

// What --sim says, as "card=mine,memory=8G", into this process' environment, where the simulated
// driver looks for it. Returns what is wrong with it.
std::optional<std::string> set_simulation(const std::string& text);

// The machine's NVML, or the simulated driver's.
Result<Nvml> load_nvml(bool is_simulated);

}  // namespace cuvmm::daemon
