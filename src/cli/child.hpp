// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace cuvmm::cli {

// Exit statuses of `cuvmm run`, as env and timeout have them.
inline constexpr int exit_ours = 125;  // something of ours failed
inline constexpr int exit_not_executable = 126;
inline constexpr int exit_not_found = 127;

// Runs the command in this environment's place: signals that are sent to us go to it, and its exit
// status, or 128 + N after signal N, is returned. `look`, where given, is told its number at once
// and every two seconds while it runs.
int run_child(const std::vector<std::string>& command, const std::function<void(pid_t)>& look = {});

}  // namespace cuvmm::cli
