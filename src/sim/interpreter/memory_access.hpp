// SPDX-License-Identifier: Apache-2.0
// Loads, stores and atomics.
#pragma once

#include "sim/interpreter/program.hpp"
#include "sim/interpreter/selection.hpp"

namespace cuvmm::sim {

enum class PtxStateSpace : std::uint8_t { Generic, Global, Shared, Local, Param, Const };

// How an address becomes one of the host's, as an instruction's variant.
struct MemoryAccess {
  PtxStateSpace space = PtxStateSpace::Generic;
  PtxType type = PtxType::Other;
  unsigned values = 1;  // .v2, .v4
};

// Operands: address in a (of width_a), displacement in immediate, values in the list.
Execute load_of(const MemoryAccess& access);
Execute store_of(const MemoryAccess& access);

// atom and red. Operands: d (or none), address a, b, c.
struct AtomicAccess {
  std::string_view operation;  // add, exch, cas, ...
  PtxStateSpace space = PtxStateSpace::Generic;
  PtxType type = PtxType::Other;
};
Execute atomic_of(const AtomicAccess& access);

// cvta, cvta.to, isspacep: variant is the space.
void run_to_generic(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
void run_from_generic(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
void run_is_in_space(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

// From one place in the threads' own memory to another: a, b offsets, immediate bytes.
void run_local_copy(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

void run_fence(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

}  // namespace cuvmm::sim
