// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace cuvmm::test {

// The state of a thread as the kernel shows it: 'S' asleep, 'T' stopped. '?' if it has gone.
// `folder` is /proc/PROCESS/task/THREAD.
inline char thread_state(const std::filesystem::path& folder) {
  std::ifstream file{folder / "stat"};
  std::string text;
  std::getline(file, text);
  const std::size_t name_ends = text.rfind(") ");
  return name_ends == std::string::npos ? '?' : text[name_ends + 2];
}

// Whether this thread of the process sleeps. One that only waits for a core does not.
inline bool is_asleep(pid_t thread) {
  return thread_state("/proc/self/task/" + std::to_string(thread)) == 'S';
}

}  // namespace cuvmm::test
