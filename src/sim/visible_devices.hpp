// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace cuvmm::sim {

// The devices that CUDA_VISIBLE_DEVICES shows to a program, in its order, by their numbers on the
// machine, which has `count`. `wanted` names them by number or by UUID ("GPU-…", or a beginning of
// it that fits only one). What follows a name that fits none is ignored, and a list that names one
// twice shows none, as with NVIDIA's driver. `card`: as for device_uuid().
std::vector<int> visible_devices(std::string_view wanted, int count, std::string_view card);

}  // namespace cuvmm::sim
