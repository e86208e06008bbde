// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

namespace cuvmm::observe {

// Reads the token: the first line of a file that only its owner, and perhaps a group, may read. It
// must have at least 16 letters, digits and punctuation marks that need no quoting in a URL.
Result<std::string> read_token(const std::string& path);

}  // namespace cuvmm::observe
