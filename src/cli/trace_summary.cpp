// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_summary.hpp"

#include <algorithm>

#include "trace/refusals.hpp"

namespace cuvmm::cli {

void TraceSummary::counted(const view::MemorySums& sums, std::uint64_t) {
  live_peak_bytes = std::max(live_peak_bytes, sums.requested);
  physical_peak_bytes = std::max(physical_peak_bytes, sums.physical);
  spilled_peak_bytes = std::max(spilled_peak_bytes, sums.spilled);
}

void TraceSummary::add(const TraceRecord& record) {
  ++events;
  last_time_ns = std::max(last_time_ns, record.time);
  if (is_refused_memory(record)) ++failed_allocations;
  switch (record.event) {
    case TraceEvent::Allocate:
      ++allocations;
      if (is_device_memory(record)) {
        ++allocations_here_;
        if ((record.flags & trace_flag::native) != 0) ++native_allocations_;
      }
      break;
    case TraceEvent::Free:
      if (record.address != 0) ++frees;
      break;
    case TraceEvent::FreeFailed:
      ++failed_frees;
      break;
    default:
      break;
  }
  walk_.add(record);
  const view::MemorySums& sums = walk_.sums();
  backed_peak_bytes_ = std::max(backed_peak_bytes_, sums.physical + sums.spilled);
}

}  // namespace cuvmm::cli
