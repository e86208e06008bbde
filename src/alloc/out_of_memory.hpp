// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/device_memory.hpp"

namespace cuvmm {

// Counts an allocation that the device refuses for lack of memory, and returns the answer to it.
CUresult refuse_allocation(int ordinal);

// Reports in the log and in the trace that an allocation failed after every reclaim step.
// `mapped_free`: bytes that are mapped but unallocated.
void report_out_of_memory(const Error& error, Size asked, const DeviceMemory& device,
                          Size mapped_free);

// While one exists, this thread's refusals are neither counted nor reported if the caller may still
// try again.
class UnreportedRefusals {
 public:
  explicit UnreportedRefusals(bool may_retry);
  ~UnreportedRefusals();
  UnreportedRefusals(const UnreportedRefusals&) = delete;
  UnreportedRefusals& operator=(const UnreportedRefusals&) = delete;
};

// How many the device has refused so far.
std::uint64_t refused_allocations(int ordinal);

}  // namespace cuvmm
