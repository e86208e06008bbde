// SPDX-License-Identifier: Apache-2.0
// From PTX text to what the interpreter runs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "sim/interpreter/program.hpp"

namespace cuvmm::sim {

// The device address of one of the module's variables.
using FindVariable = std::function<std::optional<std::uint64_t>(std::string_view name)>;

// Makes the entry's program, which refers to the text. Returns what of it is not supported, by its
// own words; empty where all is.
std::string compile_entry(std::string_view text, const std::string& entry,
                          const FindVariable& find_variable, Program& program);

}  // namespace cuvmm::sim
