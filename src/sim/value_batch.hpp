// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/operation.hpp"

namespace cuvmm::sim {

// Waits for values and writes of values, in order, as one operation; or what a call that asks for
// them answers.
CUresult make_value_batch(std::vector<CUstreamBatchMemOpParams> steps, Operation* operation);

}  // namespace cuvmm::sim
