// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

namespace cuvmm::cli {

// The path as the loader's variables can hold it. LD_PRELOAD ends a name at a blank and at a colon,
// LD_LIBRARY_PATH at a colon and a semicolon, and neither knows quotes: such a path gets another
// name, a symbolic link in this user's own folder.
Result<std::string> loadable(const std::string& path);

}  // namespace cuvmm::cli
