// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trace/header.hpp"

namespace cuvmm {

class TraceWriter;

// The trace that is taken of this process; nullptr where none is. The writer is never destroyed.
TraceWriter* current_trace();
void set_current_trace(TraceWriter* writer);

// What a number in records is called. Nothing happens where no trace is taken.
void name_in_trace(TraceSubject subject, std::uint64_t number, std::string text);

}  // namespace cuvmm
