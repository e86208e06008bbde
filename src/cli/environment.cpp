// SPDX-License-Identifier: Apache-2.0
#include "cli/environment.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace cuvmm::cli {
namespace {

bool is_of_driver(std::string_view library) {
  const std::string_view name = library.substr(library.rfind('/') + 1);
  return name.starts_with("libcuda.so") || name.starts_with("libnvidia-ml.so");
}

}  // namespace

void put_first(const char* variable, std::string_view entry, char separator) {
  std::string list{entry};
  const char* known = std::getenv(variable);
  if (known != nullptr && *known != '\0') list.append(1, separator).append(known);
  setenv(variable, list.c_str(), 1);
}

void preload(const std::string& library) {
  constexpr std::string_view between = ": \t\n";
  const char* const known = std::getenv("LD_PRELOAD");
  std::string_view rest = known != nullptr ? known : "";
  std::string list;
  const auto add = [&](std::string_view one) { list.append(list.empty() ? "" : ":").append(one); };
  bool is_added = false;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of(between), rest.size());
    const std::string_view one = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (one.empty() || one == library) continue;
    if (is_of_driver(one) && !std::exchange(is_added, true)) add(library);
    add(one);
  }
  if (!is_added) add(library);
  setenv("LD_PRELOAD", list.c_str(), 1);
}

}  // namespace cuvmm::cli
