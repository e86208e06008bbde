// SPDX-License-Identifier: Apache-2.0
#include "share/process.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

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
  long threads = 0;
  unsigned long long start = 0;
  if (after_name == nullptr ||
      std::sscanf(
          after_name + 1,
          " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
          &state, &threads, &start) != 3) {
    return {};
  }
  // The state is that of the main thread, which may have ended before the others.
  return {.runs = (state != 'Z' && state != 'X') || threads > 1,
          .is_stopped = state == 'T' || state == 't',
          .start_ticks = start};
}

std::string proc_folder_of(pid_t process) {
  std::string folder = "/proc/" + std::to_string(process);
  std::error_code failed;
  for (std::filesystem::directory_iterator thread{folder + "/task", failed}, end;
       !failed && thread != end; thread.increment(failed)) {
    std::ifstream maps{thread->path() / "maps"};
    if (maps.peek() != std::ifstream::traits_type::eof()) return thread->path();
  }
  return folder;
}

std::optional<ProcessIdentity> identity_of(pid_t process) {
  std::ifstream status{"/proc/" + std::to_string(process) + "/status"};
  ProcessIdentity identity;
  bool has_user = false;
  for (std::string line; std::getline(status, line);) {
    std::istringstream words{line};
    std::string key;
    words >> key;
    if (key == "Uid:") {
      uid_t real = 0;
      has_user = static_cast<bool>(words >> real >> identity.user);
    } else if (key == "NSpid:") {  // from this namespace to the innermost
      for (pid_t number = 0; words >> number;) identity.innermost = number;
    }
  }
  if (!has_user || identity.innermost <= 0) return {};
  return identity;
}

}  // namespace cuvmm::share
