// SPDX-License-Identifier: Apache-2.0
#include "cli/settings.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/options.hpp"
#include "base/printable.hpp"
#include "base/sim_flag.hpp"
#include "base/sim_options.hpp"
#include "base/text.hpp"
#include "cli/output.hpp"
#include "cli/sim_calls.hpp"

namespace cuvmm::cli {

std::optional<std::string> problem_of_limit(Size bytes, const std::string& text) {
  if (bytes == 0) return "a limit must be above 0; `none` means no limit";
  if (bytes >= usual_granule) return {};
  std::string why = "a limit must be at least 2 MiB";
  if (text.find_first_not_of("0123456789") == std::string::npos) {
    why += fmt::format("; {0} is {0} bytes, {0}G is {0} GiB", text);
  }
  return why;
}

std::optional<OptionProblem> problem_of_value(const std::string& name, const std::string& value) {
  if (name != "VMM_LIMIT") return problem_of_calls(name, value);
  const auto limit = SizeLimit::parse(without_outer_blanks(value));
  if (!limit) return {};
  const auto why = problem_of_limit(limit->of(unlimited), value);
  if (!why) return {};
  return OptionProblem{name, value, *why};
}

bool set_option(const std::string& name, const std::string& value, const std::string& as) {
  Options options;
  SimOptions sim_options;
  auto problem = options.set(name, value, Origin::CommandLine);
  if (name.starts_with("VMM_SIM_")) problem = sim_options.set(name, value, Origin::CommandLine);
  if (!problem.has_value()) problem = problem_of_value(name, value);
  if (problem.has_value()) {
    problem->name = fmt::format("{} ({})", as, name);
    say(problem->text());
    return false;
  }
  setenv(name.c_str(), value.c_str(), 1);
  return true;
}

// A flag with an optional value, so that it never takes the command for its value.
void add_sim_flag(CLI::App& command, std::string& settings, const std::string& help) {
  command.add_flag("--sim", settings, help)->multi_option_policy(CLI::MultiOptionPolicy::Join);
}

bool set_simulation(std::string_view flag) {
  std::vector<SimSetting> settings;
  if (const auto problem = split_sim_flag(flag, settings)) {
    say(*problem);
    return false;
  }
  return std::all_of(settings.begin(), settings.end(), [](const SimSetting& one) {
    return set_option(one.variable, one.value, "--sim=" + one.key);
  });
}

void warn_of_unknown_options() {
  const auto has = [](const auto& rows, std::string_view name) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const OptionRow& row) { return name == row.name; });
  };
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text{*variable};
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with("VMM_") || has(Options::rows(), name) || has(SimOptions::rows(), name)) {
      continue;
    }
    say(printable(name) + ": cuvmm has no such option; `cuvmm config` lists those that it has");
  }
}

}  // namespace cuvmm::cli
