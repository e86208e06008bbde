// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <nlohmann/json.hpp>

#include "trace/header.hpp"
#include "view/stack_uses.hpp"

namespace cuvmm::cli {

// What `cuvmm stats --top` shows: the call stacks that hold most memory, from a trace with stacks.
void print_stacks(const TraceHeader& header, view::StackUses& uses, std::size_t most);
void add_stacks_to(const TraceHeader& header, view::StackUses& uses, std::size_t most,
                   nlohmann::json& object);

// Prints the stacks that hold most memory at the end on standard error, in a line each.
void print_leaking_stacks(const TraceHeader& header, view::StackUses& uses);

}  // namespace cuvmm::cli
