// SPDX-License-Identifier: Apache-2.0
// How all code except the engine records events:
//
//   CUVMM_TRACE(.event = TraceEvent::Allocate, .device = 0, .address = address, .size = size);
//
// The time is that of the call, or `.time = ` an earlier now_ns(). A free takes the time before the
// memory can get another owner, and an allocation after it got the memory: so no trace shows two
// owners at once.
#pragma once

#include <atomic>

#include "trace/record.hpp"

namespace cuvmm {

namespace detail {
// The consumers of events, one bit each.
inline constexpr std::uint8_t wanted_by_trace = 1;
inline constexpr std::uint8_t wanted_by_log = 2;
extern constinit std::atomic<std::uint8_t> events_are_wanted;
void record_event(const TraceRecord& event);
}  // namespace detail

// True if a trace is being taken, or the log shows events (trace/event_log.hpp).
inline bool trace_is_on() {
  return detail::events_are_wanted.load(std::memory_order_relaxed) != 0;
}

// Never blocks, allocates only a thread's first ring, preserves errno, and is async-signal-safe. An
// event is dropped and counted if its ring is full.
inline void record_event(const TraceRecord& event) {
  if (trace_is_on()) [[unlikely]]
    detail::record_event(event);
}

}  // namespace cuvmm

// A macro, so that without a trace an event costs only a load and a branch: its fields are not
// evaluated.
#define CUVMM_TRACE(...)                                                \
  do {                                                                  \
    if (::cuvmm::trace_is_on()) [[unlikely]]                            \
      ::cuvmm::detail::record_event(::cuvmm::TraceRecord{__VA_ARGS__}); \
  } while (false)
