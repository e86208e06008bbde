// SPDX-License-Identifier: Apache-2.0
// Instructions by which the lanes of a warp exchange values.
#pragma once

#include "sim/interpreter/selection.hpp"

namespace cuvmm::sim {

// Selects shfl, vote, match, redux, activemask and bar.warp. Operands as in the text; e holds the
// participating lanes.
Choice choose_warp_function(std::string_view opcode, Modifiers& modifiers);

}  // namespace cuvmm::sim
