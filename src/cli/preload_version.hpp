// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cuvmm::cli {

// The version that a preload library carries in its file; empty where it carries none. Loading it
// would hook this process.
std::string version_of_preload(const std::string& library);

}  // namespace cuvmm::cli
