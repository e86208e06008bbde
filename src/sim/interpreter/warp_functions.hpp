// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp tell each other.
#pragma once

#include "sim/interpreter/selection.hpp"

namespace cuvmm::sim {

// shfl, vote, match, redux, activemask, bar.warp: what they need of the warp. Operands as in the
// text; the lanes that take part are in e.
Choice choose_warp_function(std::string_view opcode, Modifiers& modifiers);

}  // namespace cuvmm::sim
