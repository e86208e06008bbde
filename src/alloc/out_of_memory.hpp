// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/device_memory.hpp"

namespace cuvmm {

// The one report of an allocation that could not be served, in the log and in the trace.
// `mapped_free`: bytes that are nobody's although they are mapped.
void report_out_of_memory(const Error& error, Size asked, const DeviceMemory& device,
                          Size mapped_free);

// How many have been reported of that device, those included that the log left out.
std::uint64_t refused_allocations(int ordinal);

}  // namespace cuvmm
