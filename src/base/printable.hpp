// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace cuvmm {

// Replaces control characters and invalid UTF-8 by question marks, so that text from a file cannot
// control a terminal.
std::string printable(std::string_view text);

}  // namespace cuvmm
