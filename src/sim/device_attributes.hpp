// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/cuda.hpp"

namespace cuvmm::sim {

// What a simulated device answers: the measured card's figures, and 0 for what it cannot do.
CUresult device_attribute(CUdevice_attribute attribute, CUdevice device, int* value);

}  // namespace cuvmm::sim
