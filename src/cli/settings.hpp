// SPDX-License-Identifier: Apache-2.0
// Options that the command line sets for programs that it starts or describes.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/option_table.hpp"
#include "base/size.hpp"

namespace cuvmm::cli {

// Sets an option in the environment. Refuses values that the library would refuse, while the user
// can still correct them. `as` is the option's name on the command line.
bool set_option(const std::string& name, const std::string& value, const std::string& as);

// The problem with a limit of so many bytes, which the user wrote as `text`, if any.
std::optional<std::string> problem_of_limit(Size bytes, const std::string& text);
// The problem with a value that the library accepts, if any: a limit that must be a mistake, or a
// call or an error that no driver has.
std::optional<OptionProblem> problem_of_value(const std::string& name, const std::string& value);

// Adds --sim and --sim=SETTINGS to a command. The settings of several add up; "true" stands for
// --sim alone, and an empty text for none.
void add_sim_flag(CLI::App& command, std::string& settings, const std::string& help);
// Sets VMM_SIM_DEVICES and VMM_SIM_MEMORY for --sim=devices=2,memory=8G.
bool set_simulation(std::string_view flag);

// Warns, one line each, of variables in the environment that look like options but are none.
void warn_of_unknown_options();

}  // namespace cuvmm::cli
