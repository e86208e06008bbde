// SPDX-License-Identifier: Apache-2.0
// The variables by which schedulers (HAMi, KAI, Volcano) configure HAMi-core, so that they can use
// this library instead.
#pragma once

#include <array>
#include <optional>

#include "base/option_table.hpp"

namespace cuvmm {

struct HamiVariables {
  static constexpr int most_devices = 16;  // that have a variable of their own

  std::optional<Size> limit;                       // CUDA_DEVICE_MEMORY_LIMIT
  std::array<Size, most_devices> device_limits{};  // CUDA_DEVICE_MEMORY_LIMIT_N; 0: none
  std::optional<int> share;     // CUDA_DEVICE_SM_LIMIT: percent of the GPU's time
  std::optional<int> priority;  // CUDA_TASK_PRIORITY, for which lower is more, turned round

  // What cannot be read counts as not set, as with HAMi-core.
  static HamiVariables from(const Environment& environment);
};

}  // namespace cuvmm
