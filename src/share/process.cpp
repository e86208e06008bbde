// SPDX-License-Identifier: Apache-2.0
#include "share/process.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>

#include "base/fd.hpp"

namespace cuvmm::share {

std::uint64_t namespace_of_processes() {
  struct stat facts;
  return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

ProcessState state_of(pid_t process) {
  char text[1024];
  std::snprintf(text, sizeof text, "/proc/%d/stat", process);
  const Fd file{::open(text, O_RDONLY | O_CLOEXEC)};
  if (!file.is_open()) return {};
  const ssize_t got = ::read(file.number(), text, sizeof text - 1);
  if (got <= 0) return {};
  text[got] = '\0';
  // The program's name is in parentheses and may itself contain some.
  const char* const after_name = std::strrchr(text, ')');
  char state = 0;
  unsigned long long start = 0;
  if (after_name == nullptr ||
      std::sscanf(
          after_name + 1,
          " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
          &state, &start) != 2) {
    return {};
  }
  return {.runs = state != 'Z' && state != 'X', .start_ticks = start};
}

}  // namespace cuvmm::share
