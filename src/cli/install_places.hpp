// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

namespace cuvmm::cli {

// Where this installation (or build tree) keeps what `cuvmm` hands to other programs, found from
// where the running program lies, so that it may be moved as a whole.
Result<std::string> find_preload_library();
Result<std::string> find_sim_directory();

}  // namespace cuvmm::cli
