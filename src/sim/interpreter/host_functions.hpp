// SPDX-License-Identifier: Apache-2.0
// Functions that kernels call and the host implements: printf, assert, malloc and free.
#pragma once

#include <string_view>

#include "sim/interpreter/program.hpp"

namespace cuvmm::sim {

// The operand list holds the offsets of the arguments in the thread's local memory, d that of the
// result.
struct HostFunction {
  std::string_view name;
  std::size_t arguments;
  Execute execute;
};

const HostFunction* find_host_function(std::string_view name);

}  // namespace cuvmm::sim
