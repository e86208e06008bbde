// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cuvmm::sim {

// Returns one line for each thing that the program has not released.
std::vector<std::string> leaks();

}  // namespace cuvmm::sim
