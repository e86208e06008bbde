// SPDX-License-Identifier: Apache-2.0
// Loads, stores and atomics.
#pragma once

#include "sim/interpreter/program.hpp"
#include "sim/interpreter/selection.hpp"

namespace cuvmm::sim {

enum class PtxStateSpace : std::uint8_t { Generic, Global, Shared, Local, Param, Const };

// The state space decides how an address is translated to the host's.
struct MemoryAccess {
  PtxStateSpace space = PtxStateSpace::Generic;
  PtxType type = PtxType::Other;
  unsigned values = 1;  // .v2, .v4
};

// Operands: the address in a (of width_a bytes), its displacement in immediate, values in the list.
Execute load_of(const MemoryAccess& access);
Execute store_of(const MemoryAccess& access);

// atom and red. Operands: d (none for red), the address in a, then b and c.
struct AtomicAccess {
  std::string_view operation;  // add, exch, cas, ...
  PtxStateSpace space = PtxStateSpace::Generic;
  PtxType type = PtxType::Other;
};
Execute atomic_of(const AtomicAccess& access);

// cvta, cvta.to and isspacep; variant is the state space.
void run_to_generic(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
void run_from_generic(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
void run_is_in_space(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

// Copies within each thread's local memory: `immediate` bytes from offset a to offset d.
void run_local_copy(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

void run_fence(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

}  // namespace cuvmm::sim
