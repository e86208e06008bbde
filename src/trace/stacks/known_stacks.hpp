// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "trace/stacks/stack_table.hpp"

namespace cuvmm::stacks {

// The table of the running trace; nullptr if it has no stacks.
StackTable* known_stacks();

// Returns the stack's number. Adds the parts of it that are new to the trace.
std::uint32_t number_in_trace(StackTable& table, std::span<const Frame> frames);

// Counts time that a sample cost the program, at once or in the later callback. Times in ns.
void sample_took(std::uint64_t began, std::uint64_t ended);

}  // namespace cuvmm::stacks
