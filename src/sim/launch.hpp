// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/operation.hpp"

namespace cuvmm::sim {

enum class Cooperation : std::uint8_t { None, WholeGrid };

// Creates a launch as an operation of this context, with its own copy of the parameters. Refuses
// shapes that the card refuses, and kernels without a host function that the interpreter cannot
// run.
CUresult make_launch(const CUDA_KERNEL_NODE_PARAMS& shape, const std::shared_ptr<Context>& context,
                     Cooperation cooperation, Operation& operation);

// A call of the program's function on the stream's thread. The function must not call the driver.
Operation make_host_call(const CUDA_HOST_NODE_PARAMS& call);

}  // namespace cuvmm::sim
