// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cuvmm::sim {

// A line for each thing that the program has not given back.
std::vector<std::string> leaks();

}  // namespace cuvmm::sim
