// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cuvmm::sim {

// One text out of those of a program whose files were compiled apart (nvcc -rdc=true). Names that a
// text keeps to itself get its number behind them, so that texts may use the same ones.
std::string link_ptx(const std::vector<std::string>& texts);

}  // namespace cuvmm::sim
