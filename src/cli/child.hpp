// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace cuvmm::cli {

// Exit statuses of `cuvmm run`, the same as those of env and timeout.
inline constexpr int exit_ours = 125;  // cuvmm itself failed
inline constexpr int exit_not_executable = 126;
inline constexpr int exit_not_found = 127;

// Runs the command in this environment and forwards signals to it. Returns its exit status, or 128
// + N after signal N. Calls `look`, if given, with its PID at once and every two seconds while it
// runs.
int run_child(const std::vector<std::string>& command, const std::function<void(pid_t)>& look = {});

// In a process forked by `parent`: ends this process as soon as that one has ended, however it
// ends.
void end_with_parent(pid_t parent);

}  // namespace cuvmm::cli
