// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/cuda.hpp"
#include "sim/interpreter/thread_block.hpp"

namespace cuvmm::sim {

// Runs all blocks on the host's processors. Each host thread runs one block to its end before it
// takes the next, in order. With `together`, all blocks are in flight and take turns, so that they
// may wait for each other. Returns the error that the kernel failed with; the log names the place.
CUresult run_grid(const GridLaunch& launch, bool together);

}  // namespace cuvmm::sim
