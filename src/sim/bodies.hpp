// SPDX-License-Identifier: Apache-2.0
// The bodies of the simulated functions, one per row: CUVMM_SIM(cuMemMap)(CUdeviceptr address,
// ...). All are declared here with the row's signature, so that a body with another signature does
// not compile. A row without a body returns CUDA_ERROR_NOT_SUPPORTED.
#pragma once

#include <type_traits>

#include "sim/cuda.hpp"

#define CUVMM_SIM(symbol) CUresult sim_##symbol

namespace cuvmm::sim {
extern "C" {
#define CUVMM_API(name, symbol, since, until, flavours, effect, need)                   \
  [[gnu::weak, gnu::visibility("hidden")]] std::remove_pointer_t<PFN_##name##_v##since> \
      sim_##symbol;
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
}
}  // namespace cuvmm::sim
