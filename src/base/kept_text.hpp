// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/error.hpp"

namespace cuvmm {

// Keeps a text as long as the process lives, for an Error whose text is made at run time. Never
// frees it, so this is for errors that happen once, such as those that end the reading of a file.
const char* kept_error_text(std::string text);

// The error with the place in its subject. Like kept_error_text(), for errors that happen once.
Error error_at(const std::string& place, Error error);

}  // namespace cuvmm
