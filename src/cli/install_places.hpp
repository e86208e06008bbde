// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

namespace cuvmm::cli {

// Where this installation (or build tree) keeps what `cuvmm` hands to other programs, found from
// where the running program lies, so that it may be moved as a whole.
Result<std::string> find_preload_library();
Result<std::string> find_sim_directory();
// The folder that holds the Python package, and the interpreter that is to run it: what
// CUVMM_PYTHON names, else the one of the build tree, else python3.
Result<std::string> find_python_package();
std::string find_python(const std::string& package_folder);
// A file that is installed beside us: "libexec/cuvmm/frag_test".
Result<std::string> find_program(const char* name);

}  // namespace cuvmm::cli
