// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/operation.hpp"

namespace cuvmm::sim {

// Creates one operation that waits for values and writes values, in this order of steps. Returns
// CUDA_SUCCESS, or the error for a call that requests these steps.
CUresult make_value_batch(std::vector<CUstreamBatchMemOpParams> steps, Operation* operation);

}  // namespace cuvmm::sim
