// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/device.hpp"

namespace cuvmm::sim {

// The attributes of a simulated device: the values of the measured card, and 0 for missing
// features.
CUresult device_attribute(CUdevice_attribute attribute, const Device& device, int* value);

}  // namespace cuvmm::sim
