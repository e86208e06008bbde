// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace cuvmm::cli {

// Prepends `entry` to a list of paths in the environment.
void put_first(const char* variable, std::string_view entry, char separator = ':');

// Puts a library in front of those in LD_PRELOAD, but behind sanitizer runtimes, which abort every
// program in which another library comes first.
void preload(const std::string& library);

}  // namespace cuvmm::cli
