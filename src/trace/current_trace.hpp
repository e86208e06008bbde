// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trace/header.hpp"

namespace cuvmm {

class TraceWriter;

// The writer of this process's trace; nullptr if no trace is being taken. It is never destroyed.
TraceWriter* current_trace();
void set_current_trace(TraceWriter* writer);

// Names a number used in records. Does nothing if no trace is being taken.
void name_in_trace(TraceSubject subject, std::uint64_t number, std::string text);

}  // namespace cuvmm
