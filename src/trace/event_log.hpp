// SPDX-License-Identifier: Apache-2.0
// Logs events: those that change memory at INFO, all others at DEBUG. These are the events of a
// trace, from the same places in the code, whether or not a trace is being taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.hpp"
#include "trace/record.hpp"

namespace cuvmm {

// Starts logging events, as far as the log level admits them. `name_of_call` names the calls that
// the records' `call` indexes. Not thread-safe; call after set_up_log().
using NameOfCall = const char* (*)(std::uint16_t call);
void log_events(NameOfCall name_of_call);

Severity severity_of(TraceEvent event);

// The part of a line after its time: "map address=0x7f2000000000 size=2097152 ...".
struct EventText {
  char text[512];
};
EventText describe(const TraceRecord& event, NameOfCall name_of_call);

// The keys of every event's line as Markdown, for docs/internals/log_format.md.
std::string describe_event_lines();

namespace detail {
void log_event(const TraceRecord& event);
}

}  // namespace cuvmm
