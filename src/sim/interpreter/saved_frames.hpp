// SPDX-License-Identifier: Apache-2.0
// Instructions for recursive calls and for calls through pointers.
#pragma once

#include "sim/interpreter/program.hpp"

namespace cuvmm::sim {

inline constexpr Size most_saved_result_bytes = 256;

// Save and restore the registers and local memory of a SavedFrame (first). Restoring also copies
// the result of the call (immediate bytes of local memory at a) to d.
void run_save_frame(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
void run_restore_frame(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

// Fails the kernel if a lane's pointer (a) is not among the callable addresses of the call (first).
void run_expect_callable(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
// Sets the predicate d for lanes of the guard (c) whose pointer (a) equals the immediate.
void run_is_meant(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

}  // namespace cuvmm::sim
