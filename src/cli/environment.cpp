// SPDX-License-Identifier: Apache-2.0
#include "cli/environment.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace cuvmm::cli {
namespace {

// Such as gcc's libasan.so.8 and clang's libclang_rt.asan-x86_64.so.
bool is_sanitizer(std::string_view library) {
  constexpr std::array<std::string_view, 6> beginnings{"libasan.",  "libtsan.",   "liblsan.",
                                                       "libubsan.", "libhwasan.", "libclang_rt."};
  const std::string_view name = library.substr(library.rfind('/') + 1);
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return name.starts_with(beginning); });
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
  std::string sanitizers;
  std::string others;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of(between), rest.size());
    const std::string_view one = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (one.empty()) continue;
    if (is_sanitizer(one)) {
      sanitizers.append(one).append(1, ':');
    } else {
      others.append(1, ':').append(one);
    }
  }
  const std::string list = sanitizers + library + others;
  setenv("LD_PRELOAD", list.c_str(), 1);
}

}  // namespace cuvmm::cli
