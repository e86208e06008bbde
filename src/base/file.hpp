// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace cuvmm {

// Replaces %p by the process ID, %h by the host name, and %% by %.
std::string expand_file_name(std::string_view pattern);

// Opens a file for appending, and creates it if needed, private to its owner (0600). Does not
// follow a symbolic link, truncate, or let child programs inherit the descriptor. Fails if another
// user owns the file, or if it is neither a regular file nor a character device.
Result<Fd> open_private_file_to_add_to(const std::string& path);

}  // namespace cuvmm
