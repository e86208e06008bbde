// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cuvmm::cli {

// What a run came to, on standard error, in at most twelve lines, and what to type next. Nothing
// where a trace cannot be read: the run itself went well.
void print_run_summary(const std::vector<std::string>& traces);

}  // namespace cuvmm::cli
