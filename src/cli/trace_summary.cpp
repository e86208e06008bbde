// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_summary.hpp"

#include <algorithm>

#include "trace/refusals.hpp"

namespace cuvmm::cli {

void TraceSummary::counted(const view::MemorySums& sums, std::uint64_t) {
  live_peak_bytes = std::max(live_peak_bytes, sums.requested);
  physical_bytes_ = sums.physical;
  physical_peak_bytes = std::max(physical_peak_bytes, physical_bytes_);
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
    case TraceEvent::Spill:
      spilled_bytes_ += record.size;
      spilled_peak_bytes = std::max(spilled_peak_bytes, spilled_bytes_);
      break;
    case TraceEvent::Fetch:
      spilled_bytes_ -= std::min(record.size, spilled_bytes_);
      break;
    default:
      break;
  }
  walk_.add(record);
  backed_peak_bytes_ = std::max(backed_peak_bytes_, physical_bytes_ + spilled_bytes_);
}

}  // namespace cuvmm::cli
