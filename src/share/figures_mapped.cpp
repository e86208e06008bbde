// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>

#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "share/figures_file.hpp"

namespace cuvmm::share {
namespace {

std::vector<pid_t> all_processes() {
  std::vector<pid_t> numbers;
  DIR* const proc = ::opendir("/proc");
  if (proc == nullptr) return numbers;
  while (const dirent* entry = ::readdir(proc)) {
    const std::string_view name{entry->d_name};
    pid_t number = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
    if (read.ec == std::errc{} && read.ptr == name.data() + name.size()) numbers.push_back(number);
  }
  ::closedir(proc);
  return numbers;
}

// The process that the mapped file is named after. A line of /proc/PID/maps is
// "START-END rw-s OFFSET DEVICE INODE PATH"; a shared mapping distinguishes a figures file from a
// loaded library.
std::optional<pid_t> publisher_in(std::string_view line) {
  const std::size_t path = line.find('/');
  const std::size_t name = line.rfind('/');
  const std::size_t access = line.find(' ');
  if (path == line.npos || access + 4 >= path || line[access + 4] != 's') return {};
  return process_in_figures_file_name(std::string{line.substr(name + 1)});
}

// Readers map the files of other processes too, so only the file named after this process counts.
std::optional<FiguresMapping> mapping_of(pid_t process) {
  const std::string folder = "/proc/" + std::to_string(process);
  std::ifstream maps{folder + "/maps"};
  std::optional<ProcessIdentity> identity;
  for (std::string line; std::getline(maps, line);) {
    const auto publisher = publisher_in(line);
    if (!publisher) continue;
    if (!identity) identity = identity_of(process);
    if (!identity) return {};
    if (*publisher != identity->innermost) continue;
    return FiguresMapping{.process = process,
                          .link = folder + "/map_files/" + line.substr(0, line.find(' '))};
  }
  return {};
}

}  // namespace

std::vector<FiguresMapping> find_figures_mappings() {
  std::vector<FiguresMapping> found;
  for (const pid_t process : all_processes()) {
    if (auto mapping = mapping_of(process)) found.push_back(std::move(*mapping));
  }
  return found;
}

}  // namespace cuvmm::share
