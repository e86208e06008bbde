// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/interpreter/program.hpp"

namespace cuvmm::sim {

// Between one register (a) and its parts (the operand list), of `variant` bytes each.
void run_pack(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
void run_unpack(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

// Reads the host's clock in nanoseconds into d.
void run_read_clock(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

}  // namespace cuvmm::sim
