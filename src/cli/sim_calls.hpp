// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/option_table.hpp"

namespace cuvmm::cli {

// What is wrong with VMM_SIM_FAULT or VMM_SIM_DELAY, which name calls: the options' own table takes
// any text, since it knows no functions. Nothing for any other name.
std::optional<OptionProblem> problem_of_calls(const std::string& option, const std::string& value);

}  // namespace cuvmm::cli
