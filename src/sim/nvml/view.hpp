// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "sim/settings.hpp"

namespace cuvmm::sim {

struct ProcessUse {
  std::uint64_t process = 0;
  Size held = 0;
};

// The facts that NVML reports about a device. Read anew each time, so that nothing stays open.
struct DeviceView {
  Size memory = 0;
  Size used = 0;
  // Only processes of this PID namespace, as a card hides others from a container.
  std::vector<ProcessUse> processes;
};

int nvml_device_count();
// Returns nothing if the shared card cannot be opened.
std::optional<DeviceView> view_of_device(int ordinal);

}  // namespace cuvmm::sim
