// SPDX-License-Identifier: Apache-2.0
// Stand-ins for functions that the simulated driver lacks, and for one during which a test has
// something else happen. Only the engine sees them, in the driver's place. They do just enough to
// test how the doors handle their answers.
#pragma once

#include <functional>

#include "driver/cuda.hpp"

namespace cuvmm::test {

// A green context; the context that uses it is an ordinary one of the simulated driver.
CUgreenCtx given_green_context();

// Where the driver maps any memory of another process.
constexpr CUdeviceptr foreign_memory = 0x7000000;

// As imported from another API.
inline const CUexternalMemory foreign_external_memory = reinterpret_cast<CUexternalMemory>(0x2000);

// Calls `then` once, after the driver's next release of a primary context and before the call
// returns, as if another thread had acted at that moment.
void after_next_release(std::function<void()> then);

}  // namespace cuvmm::test
