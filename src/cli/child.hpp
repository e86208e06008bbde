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

// Replaces this process by the command, in this environment. If that fails, says why and ends.
[[noreturn]] void become(const std::vector<std::string>& command);

struct ChildEnd {
  int status = 0;  // its exit status; 128 + N after signal N
  int signal = 0;  // the signal that ended it; 0: none
};

// Runs the command in this environment and hands signals on to it. Calls `look`, if given, with its
// PID at once and every two seconds while it runs.
ChildEnd run_child(const std::vector<std::string>& command,
                   const std::function<void(pid_t)>& look = {});

// The same for a command that does part of our work: if a signal told it to end, as Ctrl-C does,
// this process ends by that signal too.
ChildEnd run_part(const std::vector<std::string>& command);

// Ends this process as the signal would, but without a core dump.
[[noreturn]] void end_by_signal(int signal);

// In a process forked by `parent`: ends this process as soon as that one has ended, however it
// ends.
void end_with_parent(pid_t parent);

}  // namespace cuvmm::cli
