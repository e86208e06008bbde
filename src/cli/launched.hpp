// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <sys/types.h>

namespace cuvmm::cli {

// Whether the process is a `cuvmm run`, which waits for the program that it started. In a shell, $!
// is that process.
bool is_launcher(pid_t process);

// Those of `processes` that the launcher has started, or that one of those has.
std::vector<pid_t> started_by(pid_t launcher, const std::vector<pid_t>& processes);

}  // namespace cuvmm::cli
