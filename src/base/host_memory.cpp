// SPDX-License-Identifier: Apache-2.0
#include "base/host_memory.hpp"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <string_view>

#include "base/text.hpp"

namespace cuvmm {
namespace {

// Calls `with` for each line, without its end. False if there is no such file.
bool read_lines(const std::string& path, const std::function<void(std::string_view)>& with) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return false;
  std::string line;
  for (int c = 0; (c = std::fgetc(file)) != EOF;) {
    if (c != '\n') {
      line.push_back(static_cast<char>(c));
      continue;
    }
    with(line);
    line.clear();
  }
  if (!line.empty()) with(line);
  std::fclose(file);
  return true;
}

// The number behind `name` in a file of names and numbers; the file's only number if there is no
// name. nullopt if it is missing or not a number ("max").
std::optional<Size> number_in(const std::string& path, std::string_view name = {}) {
  std::optional<Size> number;
  read_lines(path, [&](std::string_view line) {
    if (!line.starts_with(name)) return;
    line.remove_prefix(name.size());
    if (!name.empty() && !line.starts_with(' ') && !line.starts_with(':')) return;
    while (line.starts_with(' ') || line.starts_with(':')) line.remove_prefix(1);
    if (const auto read = take_whole_number(line)) number = Size{*read};
  });
  return number;
}

// The names of the files of one version of control groups.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* cache;  // in memory.stat: page cache that is reclaimed first
};
constexpr GroupFiles of_version_1{"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                  "total_inactive_file"};
constexpr GroupFiles of_version_2{"/memory.max", "/memory.current", "inactive_file"};

Size left_in(const std::string& folder, const GroupFiles& files) {
  Size limit = number_in(folder + files.limit).value_or(unlimited);
  // Version 1 only: the smallest limit of the groups above, which may not be visible here.
  const std::string facts = folder + "/memory.stat";
  limit = std::min(limit, number_in(facts, "hierarchical_memory_limit").value_or(unlimited));
  if (limit == unlimited) return unlimited;
  const Size used = number_in(folder + files.used).value_or(0);
  const Size cache = std::min(used, number_in(facts, files.cache).value_or(0));
  return limit - std::min(limit, used - cache);
}

// The least that the group and those above it have left. In a container the group may be named as
// the host sees it, while only a part of the tree is visible, at the top.
Size left_up_to_the_top(const std::string& top, std::string group, const GroupFiles& files) {
  Size left = unlimited;
  for (;;) {
    while (group.ends_with('/')) group.pop_back();
    left = std::min(left, left_in(top + group, files));
    if (group.empty()) return left;
    const std::size_t parent = group.rfind('/');
    group.erase(parent != std::string::npos ? parent : 0);
  }
}

bool has_word(std::string_view list, std::string_view word) {
  for (;;) {
    const std::size_t end = list.find(',');
    if (list.substr(0, end) == word) return true;
    if (end == std::string_view::npos) return false;
    list.remove_prefix(end + 1);
  }
}

// Each line is "number:controllers:group". Version 2 has the number 0 and no controllers. Where
// both are mounted, version 1 may have the memory controller.
Size left_in_groups(const std::string& root) {
  const std::string top = root + "/sys/fs/cgroup";
  Size left = unlimited;
  read_lines(root + "/proc/self/cgroup", [&](std::string_view line) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string group{line.substr(second + 1)};
    if (controllers.empty()) {
      left = std::min(left, left_up_to_the_top(top, group, of_version_2));
    } else if (has_word(controllers, "memory")) {
      left = std::min(left, left_up_to_the_top(top + "/memory", group, of_version_1));
    }
  });
  return left;
}

// In bytes; 0 if the call is refused.
Size by_system_call(unsigned long sysinfo::*figure) {
  struct sysinfo facts {};
  return ::sysinfo(&facts) == 0 ? Size{facts.*figure} * facts.mem_unit : 0;
}

}  // namespace

Size total_host_memory(const std::string& root) {
  if (const Size total = by_system_call(&sysinfo::totalram)) return total;
  return number_in(root + "/proc/meminfo", "MemTotal").value_or(0) * KiB;
}

Size available_host_memory(const std::string& root) {
  const auto kib = number_in(root + "/proc/meminfo", "MemAvailable");
  if (kib) return std::min(*kib * KiB, left_in_groups(root));
  // A program that has used up its descriptors cannot read any file.
  return by_system_call(&sysinfo::freeram);
}

}  // namespace cuvmm
