// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <nlohmann/json.hpp>

#include "trace/header.hpp"
#include "view/stack_uses.hpp"

namespace cuvmm::cli {

// Prints the call stacks that hold most memory, for `cuvmm stats --top`.
void print_stacks(const TraceHeader& header, view::StackUses& uses, std::size_t most);
void add_stacks_to(const TraceHeader& header, view::StackUses& uses, std::size_t most,
                   nlohmann::json& object);

// Prints the stacks that hold most memory at the trace's end to standard error, one per line.
void print_leaking_stacks(const TraceHeader& header, view::StackUses& uses);

}  // namespace cuvmm::cli
