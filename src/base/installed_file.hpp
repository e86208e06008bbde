// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>

#include "base/processor.h"
#include "base/result.hpp"

namespace cuvmm {

// Finds a file that was installed with the running program. build/bin and prefix/bin have lib next
// to them; a Debian package has CUVMM_LIBRARY_FOLDER; a Python package keeps everything in one
// folder. On failure returns NotFound, with `missing` as the step that failed.
Result<std::string> find_installed_file(const char* what, const char* missing,
                                        std::initializer_list<const char*> places = {
                                            "../lib", "../" CUVMM_LIBRARY_FOLDER, "."});

}  // namespace cuvmm
