// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/interpreter/program.hpp"

namespace cuvmm::sim {

// a is the whole, the list its parts, variant the bytes of a part.
void run_pack(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
void run_unpack(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

// d is the clock, in nanoseconds of the host.
void run_read_clock(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

}  // namespace cuvmm::sim
