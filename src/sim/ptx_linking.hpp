// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cuvmm::sim {

// Links the texts of a program whose files were compiled separately (nvcc -rdc=true) into one.
// Names local to a text get its number as a suffix, so that several texts may use the same name.
std::string link_ptx(const std::vector<std::string>& texts);

}  // namespace cuvmm::sim
