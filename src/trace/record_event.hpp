// SPDX-License-Identifier: Apache-2.0
// Recording, as everybody but the engine sees it:
//
//   CUVMM_TRACE(.event = TraceEvent::Allocate, .device = 0, .address = address, .size = size);
//
// The time is that of the call, or `.time = ` an earlier now_ns(). Who frees takes the time before
// the memory can become somebody else's, and who allocates after it was had: then no trace shows
// two owners at once.
#pragma once

#include <atomic>

#include "trace/record.hpp"

namespace cuvmm {

namespace detail {
// Who wants events, a bit each.
inline constexpr std::uint8_t wanted_by_trace = 1;
inline constexpr std::uint8_t wanted_by_log = 2;
extern constinit std::atomic<std::uint8_t> events_are_wanted;
void record_event(const TraceRecord& event);
}  // namespace detail

// A trace is being taken, or the log shows events (trace/event_log.hpp).
inline bool trace_is_on() {
  return detail::events_are_wanted.load(std::memory_order_relaxed) != 0;
}

// Waits for nothing, allocates nothing but a thread's first ring, keeps errno, and may be called
// from a signal handler. An event that finds its ring full is counted and lost.
inline void record_event(const TraceRecord& event) {
  if (trace_is_on()) [[unlikely]]
    detail::record_event(event);
}

}  // namespace cuvmm

// A macro, so that without a trace an event costs a load and a branch, whatever its fields would.
#define CUVMM_TRACE(...)                                                \
  do {                                                                  \
    if (::cuvmm::trace_is_on()) [[unlikely]]                            \
      ::cuvmm::detail::record_event(::cuvmm::TraceRecord{__VA_ARGS__}); \
  } while (false)
