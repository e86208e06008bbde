// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

namespace cuvmm::observe {

// The first line of a file that only its owner, and perhaps a group, may read: at least 16 letters,
// digits and marks that need no quoting in a URL.
Result<std::string> read_token(const std::string& path);

}  // namespace cuvmm::observe
