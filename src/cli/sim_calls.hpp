// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/option_table.hpp"

namespace cuvmm::cli {

// The problem with the value of VMM_SIM_FAULT or VMM_SIM_DELAY, if any. These options name calls,
// and the options' own table accepts any text, since it knows no functions. Returns nothing for
// other options.
std::optional<OptionProblem> problem_of_calls(const std::string& option, const std::string& value);

}  // namespace cuvmm::cli
