// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace cuvmm::sim {

// Returns the devices that a program sees if CUDA_VISIBLE_DEVICES is `wanted`: their numbers on the
// machine, which has `count`, in the order of the list. The list has numbers, or UUIDs ("GPU-…", or
// an unambiguous prefix of one). As with NVIDIA's driver, it ends before the first entry that
// matches no device, and it is invalid (nullopt) if it has a duplicate. `card`: as for
// device_uuid().
std::optional<std::vector<int>> visible_devices(std::string_view wanted, int count,
                                                std::string_view card);

}  // namespace cuvmm::sim
