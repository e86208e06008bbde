// SPDX-License-Identifier: Apache-2.0
// What both sides of figures know of the file and of processes.
#pragma once

#include "share/figures.hpp"

namespace cuvmm::share {

inline constexpr std::uint64_t figures_magic = 0x31'73'65'72'75'67'69'66;  // "figures1"

std::uint32_t checksum_of(const Figures& figures);

// Distinct among processes that run, whatever namespace each is of.
std::string figures_file_name(const Publisher& publisher);

// Of this process; 0 where it cannot be known.
std::uint64_t namespace_of_processes();

struct ProcessState {
  bool runs = false;              // there is one, and it is no zombie
  std::uint64_t start_ticks = 0;  // since the machine started
};
ProcessState state_of(pid_t process);

}  // namespace cuvmm::share
