// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/cuda.hpp"
#include "sim/interpreter/thread_block.hpp"

namespace cuvmm::sim {

// Runs all blocks on the host's processors. A block that began runs to its end before its thread
// takes the next, in order; with `together`, all blocks of the grid are begun and take turns, so
// that they may wait for each other. Answers what the kernel failed by, which the log then
// explains.
CUresult run_grid(const GridLaunch& launch, bool together);

}  // namespace cuvmm::sim
