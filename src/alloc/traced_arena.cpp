// SPDX-License-Identifier: Apache-2.0
#include "alloc/traced_arena.hpp"

#include <atomic>

#include "trace/current_trace.hpp"
#include "trace/record_event.hpp"

namespace cuvmm {
namespace {

std::uint32_t next_number() {
  static constinit std::atomic<std::uint32_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

TracedArena::TracedArena(int device, const char* what) : device_(device), number_(next_number()) {
  if (!trace_is_on()) return;
  name_in_trace(TraceSubject::Arena, number_, "device " + std::to_string(device) + ", " + what);
}

void TracedArena::tell(const ArenaUse& use) const {
  record_event({.event = TraceEvent::ArenaCounters,
                .device = static_cast<std::int16_t>(device_),
                .detail = number_,
                .address = use.used,
                .size = use.free,
                .stream = use.moved,
                .other = use.compacted});
}

}  // namespace cuvmm
