// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>

#include "spill/pause.hpp"

namespace cuvmm {

// MemAvailable, capped by what is left of the control group's limit.
Size available_host_memory() {
  Size available = 0;
  if (std::FILE* const facts = std::fopen("/proc/meminfo", "re")) {
    char line[128];
    unsigned long long kib = 0;
    while (std::fgets(line, sizeof line, facts) != nullptr) {
      if (std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1) available = Size{kib} * KiB;
    }
    std::fclose(facts);
  }
  const auto number_in = [](const char* path) {
    unsigned long long number = unlimited;
    if (std::FILE* const file = std::fopen(path, "re")) {
      if (std::fscanf(file, "%llu", &number) != 1) number = unlimited;  // "max"
      std::fclose(file);
    }
    return Size{number};
  };
  const Size most = number_in("/sys/fs/cgroup/memory.max");
  if (most == unlimited) return available;
  const Size used = number_in("/sys/fs/cgroup/memory.current");
  const Size left = most > used ? most - used : 0;
  return available < left ? available : left;
}

}  // namespace cuvmm
