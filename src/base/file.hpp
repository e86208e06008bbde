// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace cuvmm {

// Puts the process' number for %p, the host's name for %h and a % for %%.
std::string expand_file_name(std::string_view pattern);

// Opens a file of our own to add to: created for its owner alone (0600), through no symbolic link,
// not passed on to other programs. What is in it stays. A file of somebody else's, or one that is
// neither a plain file nor a device, is refused.
Result<Fd> open_private_file_to_add_to(const std::string& path);

}  // namespace cuvmm
