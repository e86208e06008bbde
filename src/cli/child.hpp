// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cuvmm::cli {

// Exit statuses of `cuvmm run`, as env and timeout have them.
inline constexpr int exit_ours = 125;  // something of ours failed
inline constexpr int exit_not_executable = 126;
inline constexpr int exit_not_found = 127;

// Runs the command in this environment's place: signals that are sent to us go to it, and its exit
// status, or 128 + N after signal N, is returned.
int run_child(const std::vector<std::string>& command);

}  // namespace cuvmm::cli
