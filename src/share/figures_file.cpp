// SPDX-License-Identifier: Apache-2.0
#include "share/figures_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/size.hpp"
#include "share/place.hpp"
#include "trace/checksum.hpp"

namespace cuvmm::share {
namespace {

constexpr const char* prefix = "figures-";

struct FileName {
  pid_t process = 0;
  std::uint64_t namespace_of_process = 0;
  bool is_whole = false;  // else it was being made
};

// "figures-4711-4026531836"
std::optional<FileName> read_name(const char* name) {
  FileName read;
  int length = 0;
  unsigned long long number = 0;
  if (std::sscanf(name, "figures-%d-%llu%n", &read.process, &number, &length) != 2) return {};
  const std::string_view rest{name + length};
  if (read.process <= 0 || (!rest.empty() && rest != ".new")) return {};
  read.namespace_of_process = number;
  read.is_whole = rest.empty();
  return read;
}

}  // namespace

std::uint32_t checksum_of(const Figures& figures) {
  constexpr std::size_t skipped = offsetof(Figures, question);
  const auto* const bytes = reinterpret_cast<const std::byte*>(&figures);
  return crc32c({bytes + skipped, sizeof figures - skipped});
}

std::string figures_file_name(const Publisher& publisher) {
  return prefix + std::to_string(publisher.process) + "-" +
         std::to_string(publisher.namespace_of_process);
}

std::uint64_t namespace_of_processes() {
  struct stat facts;
  return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

ProcessState state_of(pid_t process) {
  const Fd file{
      ::open(("/proc/" + std::to_string(process) + "/stat").c_str(), O_RDONLY | O_CLOEXEC)};
  if (!file.is_open()) return {};
  char text[1024];
  const ssize_t got = ::read(file.number(), text, sizeof text - 1);
  if (got <= 0) return {};
  text[got] = '\0';
  // The program's name stands in brackets and may hold some itself.
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

void remove_figures_of_the_dead(const std::string& folder) {
  const std::uint64_t here = namespace_of_processes();
  DIR* const files = ::opendir(folder.c_str());
  if (files == nullptr) return;
  while (const dirent* entry = ::readdir(files)) {
    const auto name = read_name(entry->d_name);
    if (!name || name->namespace_of_process != here || here == 0) continue;
    if (!state_of(name->process).runs) ::unlink((folder + "/" + entry->d_name).c_str());
  }
  ::closedir(files);
}

FiguresFiles find_figures() {
  FiguresFiles found;
  for (const std::string& folder : private_folders()) {
    struct stat facts;
    if (::lstat(folder.c_str(), &facts) != 0) {
      if (errno != ENOENT) found.problems.push_back(folder + ": " + std::strerror(errno));
      continue;
    }
    if (!S_ISDIR(facts.st_mode) || facts.st_uid != ::geteuid() ||
        (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
      found.problems.push_back(folder + ": is not this user's alone, so nothing of it is read");
      continue;
    }
    DIR* const files = ::opendir(folder.c_str());
    if (files == nullptr) {
      found.problems.push_back(folder + ": " + std::strerror(errno));
      continue;
    }
    while (const dirent* entry = ::readdir(files)) {
      const auto name = read_name(entry->d_name);
      if (name && name->is_whole) found.paths.push_back(folder + "/" + entry->d_name);
    }
    ::closedir(files);
  }
  return found;
}

}  // namespace cuvmm::share
