// SPDX-License-Identifier: Apache-2.0
// Fault injection and call counts for tests: let the n-th call fail or be the process's last one,
// delay calls, count them.
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/cuda.hpp"
#include "sim/rows.hpp"

namespace cuvmm::sim {

struct Interfered {
  CUresult answer = CUDA_SUCCESS;  // or the error that this call has to return
  bool is_last = false;            // the process dies as the call returns
};

// Counts the call and waits for its delay.
Interfered interfere_before(Row row);

// For example "cuMemMap:7=CUDA_ERROR_OUT_OF_MEMORY,cuMemCreate:1=SIGKILL". Counts from now on, and
// replaces all faults that were set before. If the text does not parse, returns false and changes
// nothing.
bool set_faults(std::string_view text);

// For example "cuMemMap=25us,cuLaunchKernel=3us". Same rules as for set_faults().
bool set_delays(std::string_view text);

// The number of calls so far by API name, all versions together; of all functions if it is empty.
std::uint64_t calls_of(std::string_view name);

}  // namespace cuvmm::sim
