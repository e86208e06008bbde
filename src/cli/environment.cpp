// SPDX-License-Identifier: Apache-2.0
#include "cli/environment.hpp"

#include <cstdlib>

namespace cuvmm::cli {

void put_first(const char* variable, std::string_view entry, char separator) {
  std::string list{entry};
  const char* known = std::getenv(variable);
  if (known != nullptr && *known != '\0') list.append(1, separator).append(known);
  setenv(variable, list.c_str(), 1);
}

}  // namespace cuvmm::cli
