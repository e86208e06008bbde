// SPDX-License-Identifier: Apache-2.0
// Events as lines of the log: those that change memory at INFO, all others at DEBUG. The same
// events as in a trace, told at the same places, whether a trace is taken or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.hpp"
#include "trace/record.hpp"

namespace cuvmm {

// From here on events are logged, as far as the log's level has them. `name_of_call` says what the
// records' `call` counts through. Not for two threads at once; after set_up_log().
using NameOfCall = const char* (*)(std::uint16_t call);
void log_events(NameOfCall name_of_call);

Severity severity_of(TraceEvent event);

// "map address=0x7f2000000000 size=2097152 ...", as the line has it after its time.
struct EventText {
  char text[512];
};
EventText describe(const TraceRecord& event, NameOfCall name_of_call);

// The keys of every event's line in Markdown, as they stand in docs/log_format.md.
std::string describe_event_lines();

namespace detail {
void log_event(const TraceRecord& event);
}

}  // namespace cuvmm
