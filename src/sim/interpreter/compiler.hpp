// SPDX-License-Identifier: Apache-2.0
// Compiles PTX text for the interpreter.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "sim/interpreter/program.hpp"

namespace cuvmm::sim {

// Returns the device address of a module variable, or the value of a pointer to a function.
using FindVariable = std::function<std::optional<std::uint64_t>(std::string_view name)>;

// Compiles the entry into `program`, which refers to the text. Returns the name of the first thing
// in it that is not supported, or an empty string if the program is complete.
std::string compile_entry(std::string_view text, const std::string& entry,
                          const FindVariable& find_variable, Program& program);

}  // namespace cuvmm::sim
