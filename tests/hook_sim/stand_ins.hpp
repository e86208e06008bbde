// SPDX-License-Identifier: Apache-2.0
// Functions that the simulated driver lacks, for the engine alone, which finds them in its place:
// as little as tells what the doors make of their answers.
#pragma once

#include "driver/cuda.hpp"

namespace cuvmm::test {

// A green context; the one that it is used by is an ordinary one of the simulated driver.
CUgreenCtx given_green_context();

}  // namespace cuvmm::test
