// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace cuvmm::cli {

// Puts `entry` first in a list of paths in the environment, and keeps what is there.
void put_first(const char* variable, std::string_view entry, char separator = ':');

// Puts a library before those that LD_PRELOAD names, but behind runtimes of sanitizers, which end
// every program where another library comes before them.
void preload(const std::string& library);

}  // namespace cuvmm::cli
