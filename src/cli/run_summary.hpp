// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trace/header.hpp"

namespace cuvmm::cli {

// " (simulated)" where the trace is of the simulated driver, whose times say nothing of a card's.
const char* note_on_times(const TraceHeader& header);

// What a run came to, on standard error, in few lines, and what to type next; of children, their
// traces. Nothing where a trace cannot be read: the run itself went well.
void print_run_summary(const std::vector<std::string>& traces);

}  // namespace cuvmm::cli
