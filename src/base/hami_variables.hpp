// SPDX-License-Identifier: Apache-2.0
// The environment variables with which schedulers (HAMi, KAI, Volcano) configure HAMi-core, so that
// they can use this library instead.
#pragma once

#include <array>
#include <optional>

#include "base/option_table.hpp"

namespace cuvmm {

struct HamiVariables {
  static constexpr int most_devices = 16;  // devices with a variable of their own

  std::optional<Size> limit;                       // CUDA_DEVICE_MEMORY_LIMIT
  std::array<Size, most_devices> device_limits{};  // CUDA_DEVICE_MEMORY_LIMIT_N; 0: none
  std::optional<int> share;     // CUDA_DEVICE_SM_LIMIT: percent of the GPU's time
  std::optional<int> priority;  // CUDA_TASK_PRIORITY, where lower means more urgent; sign inverted

  // A value that does not parse counts as unset, as with HAMi-core.
  static HamiVariables from(const Environment& environment);
};

}  // namespace cuvmm
