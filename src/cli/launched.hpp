// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <sys/types.h>

namespace cuvmm::cli {

// Whether programs that the process has started run under cuvmm: it is a `cuvmm run` that waits for
// its program, or it runs under cuvmm itself, as a shell may. In a shell, $! is that process.
bool is_launcher(pid_t process);

// Those of `processes` that the launcher has started, or that one of those has.
std::vector<pid_t> started_by(pid_t launcher, const std::vector<pid_t>& processes);

}  // namespace cuvmm::cli
