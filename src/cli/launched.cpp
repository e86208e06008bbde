// SPDX-License-Identifier: Apache-2.0
#include "cli/launched.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace cuvmm::cli {
namespace {

std::string folder_of(pid_t process) {
  return "/proc/" + std::to_string(process);
}

// 0 if the process has ended.
pid_t parent_of(pid_t process) {
  std::ifstream file{folder_of(process) + "/stat"};
  const std::string line{std::istreambuf_iterator<char>{file}, {}};
  // The second field is a name in parentheses, which may contain anything.
  const std::size_t name_ends = line.rfind(')');
  if (name_ends == std::string::npos) return 0;
  constexpr std::size_t state_and_blanks = 4;
  return static_cast<pid_t>(std::strtol(line.c_str() + name_ends + state_and_blanks, nullptr, 10));
}

bool descends_from(pid_t process, pid_t ancestor) {
  constexpr int most_generations = 64;  // parents may change while we look
  for (int i = 0; i < most_generations && process > 1; ++i) {
    process = parent_of(process);
    if (process == ancestor) return true;
  }
  return false;
}

}  // namespace

bool is_launcher(pid_t process) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink(folder_of(process) + "/exe", error);
  if (!error && program.filename() == "cuvmm") return true;
  std::ifstream maps{folder_of(process) + "/maps"};
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/libcuvmm_preload.so") != std::string::npos) return true;
  }
  return false;
}

std::vector<pid_t> started_by(pid_t launcher, const std::vector<pid_t>& processes) {
  std::vector<pid_t> started;
  std::copy_if(processes.begin(), processes.end(), std::back_inserter(started),
               [launcher](pid_t process) { return descends_from(process, launcher); });
  return started;
}

}  // namespace cuvmm::cli
