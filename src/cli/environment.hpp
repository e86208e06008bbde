// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace cuvmm::cli {

// Prepends `entry` to a list of paths in the environment.
void put_first(const char* variable, std::string_view entry, char separator = ':');

// Puts a library into LD_PRELOAD: behind other tools, which see the program's calls first and then
// make them as the program would, but before the driver's own libraries.
void preload(const std::string& library);

}  // namespace cuvmm::cli
