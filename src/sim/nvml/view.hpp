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

// What NVML is asked about a device. Looked up anew each time, so that nothing is kept open.
struct DeviceView {
  Size memory = 0;
  Size used = 0;
  // Those of this namespace of process numbers, as in a container, where a card hides the others.
  std::vector<ProcessUse> processes;
};

int nvml_device_count();
// Nothing where the shared card cannot be had.
std::optional<DeviceView> view_of_device(int ordinal);

}  // namespace cuvmm::sim
