// SPDX-License-Identifier: Apache-2.0
// Functions that kernels call and the host runs: printf and assert.
#pragma once

#include <string_view>

#include "sim/interpreter/program.hpp"

namespace cuvmm::sim {

// The list holds the arguments' places in the thread's local memory, d the result's.
struct HostFunction {
  std::string_view name;
  std::size_t arguments;
  Execute execute;
};

const HostFunction* find_host_function(std::string_view name);

}  // namespace cuvmm::sim
