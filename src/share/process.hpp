// SPDX-License-Identifier: Apache-2.0
// Identifies processes across pid namespaces and over time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace cuvmm::share {

// The pid namespace of this process, within which pids are unique; 0 if it is unknown.
std::uint64_t namespace_of_processes();

struct ProcessState {
  bool runs = false;              // it exists, and not all of its threads have ended
  bool is_stopped = false;        // by a signal or a debugger
  std::uint64_t start_ticks = 0;  // start time, since boot
};
ProcessState state_of(pid_t process);

// Where the system describes its memory and environment: once the main thread has ended, only the
// folders of the other threads do.
std::string proc_folder_of(pid_t process);

struct ProcessIdentity {
  uid_t user = 0;       // effective
  pid_t innermost = 0;  // its number in its own pid namespace
};
// Nothing if the process has ended or is hidden from this user.
std::optional<ProcessIdentity> identity_of(pid_t process);

}  // namespace cuvmm::share
