// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "trace/stacks/stack_table.hpp"

namespace cuvmm::stacks {

// The table of the running trace; nullptr if it has no stacks.
StackTable* known_stacks();

// The stack's number, after adding what is new of it to the trace.
std::uint32_t number_in_trace(StackTable& table, std::span<const Frame> frames);

// Call for all the time that a sample takes the program, including what is done later. Times in ns.
void sample_took(std::uint64_t began, std::uint64_t ended);

}  // namespace cuvmm::stacks
