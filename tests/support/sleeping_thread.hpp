// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>

namespace cuvmm::test {

// Whether this thread of the process sleeps. One that only waits for a core does not.
inline bool is_asleep(pid_t thread) {
  std::ifstream file{"/proc/self/task/" + std::to_string(thread) + "/stat"};
  std::string state;
  std::getline(file, state);
  const auto name_ends = state.rfind(") ");
  return name_ends != std::string::npos && state[name_ends + 2] == 'S';
}

}  // namespace cuvmm::test
