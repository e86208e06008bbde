// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cuvmm::cli {

// Reads a preload library's version from its file, since loading it would hook this process. Empty
// if the file contains no version.
std::string version_of_preload(const std::string& library);

}  // namespace cuvmm::cli
