// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/device_memory.hpp"

namespace cuvmm {

// Reports an allocation that could not be served, in the log and in the trace. `mapped_free`: bytes
// that are mapped but unallocated.
void report_out_of_memory(const Error& error, Size asked, const DeviceMemory& device,
                          Size mapped_free);

// How many were reported for the device, including those that the log left out.
std::uint64_t refused_allocations(int ordinal);

}  // namespace cuvmm
