// SPDX-License-Identifier: Apache-2.0
// Functions that the simulated driver lacks, visible only to the engine, which finds them in the
// driver's place: just enough to test how the doors handle their answers.
#pragma once

#include "driver/cuda.hpp"

namespace cuvmm::test {

// A green context; the context that uses it is an ordinary one of the simulated driver.
CUgreenCtx given_green_context();

}  // namespace cuvmm::test
