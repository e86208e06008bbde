// SPDX-License-Identifier: Apache-2.0
#include "alloc/out_of_memory.hpp"

#include <atomic>

#include "base/log.hpp"
#include "trace/record_event.hpp"

namespace cuvmm {
namespace {

// Programs that look for the largest size they can have ask again and again.
constexpr int most_reports = 20;
std::atomic<int> reports{0};

}  // namespace

void report_out_of_memory(const Error& error, Size asked, const DeviceMemory& device,
                          Size mapped_free) {
  const ChunkCounters counters = device.chunk_counters();
  const Size cached = counters.physical_free + mapped_free;
  const Size held = counters.physical_in_use + counters.physical_free;
  const Size live = held > cached ? held - cached : 0;
  record_event({.event = TraceEvent::OutOfMemory,
                .device = static_cast<std::int16_t>(device.ordinal()),
                .address = error.available,
                .size = asked,
                .stream = live,
                .other = cached});
  const int before = reports.fetch_add(1);
  if (before > most_reports) return;
  if (before == most_reports) {
    CUVMM_LOG(Warning, "out of memory again; no more of these lines");
    return;
  }
  CUVMM_LOG(Warning,
            "device %d: out of memory: %s asked, %s live, %s cached, limit %s, largest contiguous "
            "%s; tried: %s",
            device.ordinal(), print_size(asked).c_str(), print_size(live).c_str(),
            print_size(cached).c_str(), print_size(device.limit()).c_str(),
            print_size(error.available).c_str(), error.text().c_str());
}

}  // namespace cuvmm
