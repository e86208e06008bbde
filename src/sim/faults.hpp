// SPDX-License-Identifier: Apache-2.0
// What tests do to calls from outside: let the n-th one fail, let all take longer, count them.
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/cuda.hpp"
#include "sim/rows.hpp"

namespace cuvmm::sim {

// Counts the call and waits for as long as its delay says. CUDA_SUCCESS, or the error that this
// call is to fail with.
CUresult faults_before(Row row);

// "cuMemMap:7=CUDA_ERROR_OUT_OF_MEMORY,cuMemCreate:1=CUDA_ERROR_OUT_OF_MEMORY": counted from now,
// in place of all that were set before. False, and nothing changes, where the text does not parse.
bool set_faults(std::string_view text);

// "cuMemMap=25us,cuLaunchKernel=3us", likewise.
bool set_delays(std::string_view text);

// Calls so far by API name, all versions together; of every function where it is empty.
std::uint64_t calls_of(std::string_view name);

}  // namespace cuvmm::sim
