// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cuvmm {

// Keeps a text as long as the process lives, for an Error whose text is made at run time. Never
// frees it, so this is for errors that happen once, such as those that end the reading of a file.
const char* kept_error_text(std::string text);

}  // namespace cuvmm
