// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_summary.hpp"

#include <algorithm>

namespace cuvmm::cli {
namespace {

bool is_on_host(const TraceRecord& record) {
  return (record.flags & trace_flag::on_host) != 0;
}
bool is_native(const TraceRecord& record) {
  return (record.flags & trace_flag::native) != 0;
}

}  // namespace

void TraceSummary::grow(Size live, Size physical) {
  live_bytes += live;
  physical_bytes += physical;
  live_peak_bytes = std::max(live_peak_bytes, live_bytes);
  physical_peak_bytes = std::max(physical_peak_bytes, physical_bytes);
}

// A trace that began late tells of ends whose beginnings it does not know.
void TraceSummary::shrink(Size live, Size physical) {
  live_bytes -= std::min(live, live_bytes);
  physical_bytes -= std::min(physical, physical_bytes);
}

void TraceSummary::add(const TraceRecord& record) {
  ++events;
  last_time_ns = std::max(last_time_ns, record.time);
  switch (record.event) {
    case TraceEvent::Allocate: {
      ++allocations;
      if (is_on_host(record)) break;
      const Live live{.requested = record.size, .physical = is_native(record) ? record.other : 0};
      live_[record.address] = live;
      grow(live.requested, live.physical);
      break;
    }
    case TraceEvent::Free: {
      if (record.address == 0) break;
      ++frees;
      const auto found = live_.find(record.address);
      if (found == live_.end()) break;
      shrink(found->second.requested, found->second.physical);
      live_.erase(found);
      break;
    }
    case TraceEvent::AllocateFailed:
      ++failed_allocations;
      break;
    case TraceEvent::FreeFailed:
      ++failed_frees;
      break;
    case TraceEvent::Create:
      if (is_on_host(record)) break;
      chunks_[record.other] = record.size;
      grow(0, record.size);
      break;
    case TraceEvent::Release: {
      const auto found = chunks_.find(record.other);
      if (found == chunks_.end()) break;
      shrink(0, found->second);
      chunks_.erase(found);
      break;
    }
    default:
      break;
  }
}

}  // namespace cuvmm::cli
