// SPDX-License-Identifier: Apache-2.0
// Which process one is, among those of other namespaces and of other times.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace cuvmm::share {

// Numbers of processes count within one. Of this process; 0 where it cannot be known.
std::uint64_t namespace_of_processes();

struct ProcessState {
  bool runs = false;              // there is one, and it is no zombie
  std::uint64_t start_ticks = 0;  // since the machine started
};
ProcessState state_of(pid_t process);

}  // namespace cuvmm::share
