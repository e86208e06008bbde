// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace cuvmm::cli {

// Puts `entry` first in a list of paths in the environment, and keeps what is there.
void put_first(const char* variable, std::string_view entry, char separator = ':');

}  // namespace cuvmm::cli
