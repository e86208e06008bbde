// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "usage/described.hpp"

namespace cuvmm::cli {

// `shell` is bash, zsh or fish.
std::string completions(const std::vector<usage::DescribedCommand>& commands,
                        const std::string& shell);

}  // namespace cuvmm::cli
