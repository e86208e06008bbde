// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trace/header.hpp"

namespace cuvmm::cli {

// " (simulated)" for traces of the simulated driver, whose times say nothing about a card's.
const char* note_on_times(const TraceHeader& header);

// Prints a short summary of a run, further commands to try, and the children's traces to standard
// error. Prints nothing if a trace cannot be read, since the run itself succeeded.
void print_run_summary(const std::vector<std::string>& traces);

}  // namespace cuvmm::cli
