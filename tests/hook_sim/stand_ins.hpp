// SPDX-License-Identifier: Apache-2.0
// Functions that the simulated driver lacks, or that it calls at an awkward moment, visible only to
// the engine, which finds them in the driver's place: just enough to test how the doors handle
// their answers.
#pragma once

#include <functional>

#include "driver/cuda.hpp"

namespace cuvmm::test {

// A green context; the context that uses it is an ordinary one of the simulated driver.
CUgreenCtx given_green_context();

// Called once, after the next release of a primary context and before its caller knows of it, as if
// by another thread.
void after_next_release(std::function<void()> then);

}  // namespace cuvmm::test
