// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "observe/snapshot.hpp"

namespace cuvmm::observe {

// One line, as the live view reads it.
std::string print_json(const Snapshot& snapshot);

}  // namespace cuvmm::observe
