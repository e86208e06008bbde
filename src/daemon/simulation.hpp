// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "observe/devices.hpp"

namespace cuvmm::daemon {

// Puts the value of --sim, such as "card=mine,memory=8G", into this process' environment, where the
// simulated driver reads it. Returns the problem with the value, if any.
std::optional<std::string> set_simulation(std::string_view flag);

// The machine's NVML, or the simulated driver's.
Result<observe::Nvml> load_nvml(bool is_simulated);

}  // namespace cuvmm::daemon
