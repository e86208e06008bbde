// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

namespace cuvmm::cli {

// A path that the loader's variables can hold. LD_PRELOAD separates names by blanks and colons,
// LD_LIBRARY_PATH by colons and semicolons, and neither supports quotes. A path with such a
// character is replaced by a symbolic link in this user's own folder.
Result<std::string> loadable(const std::string& path);

}  // namespace cuvmm::cli
