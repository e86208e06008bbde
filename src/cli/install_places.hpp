// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

namespace cuvmm::cli {

// The files of this installation (or build tree) that `cuvmm` hands to other programs. They are
// found relative to the running program, so that an installation can be moved as a whole.
Result<std::string> find_preload_library();
Result<std::string> find_sim_directory();
// The folder with the Python package, and the interpreter to run it: CUVMM_PYTHON if set, else that
// of the build tree, else python3.
Result<std::string> find_python_package();
std::string find_python(const std::string& package_folder);
// A file installed with us, such as "libexec/cuvmm/frag_test".
Result<std::string> find_program(const char* name);

}  // namespace cuvmm::cli
