// SPDX-License-Identifier: Apache-2.0
#include "cli/settings.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/options.hpp"
#include "base/sim_options.hpp"
#include "base/text.hpp"
#include "cli/output.hpp"
#include "cli/sim_calls.hpp"

namespace cuvmm::cli {

char lower_of(char letter) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
}

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

namespace {

constexpr std::string_view sim_prefix = "VMM_SIM_";

// The keys that --sim accepts, such as "devices".
std::vector<std::string> simulation_keys() {
  std::vector<std::string> keys;
  for (const OptionRow& row : SimOptions::rows()) {
    std::string key{std::string_view{row.name}.substr(sim_prefix.size())};
    for (char& letter : key) letter = lower_of(letter);
    keys.push_back(std::move(key));
  }
  return keys;
}

// A comma also separates several faults or delays: "fault=cuMemAlloc:1=...,cuMemMap:2=...".
std::size_t end_of_part(std::string_view text, std::size_t begin) {
  std::size_t end = text.find(',', begin);
  while (end < text.size() && text.substr(end + 1).starts_with("cu")) {
    end = text.find(',', end + 1);
  }
  return std::min(end, text.size());
}

}  // namespace

bool is_simulation_setting(const std::string& text) {
  const std::size_t equals = text.find('=');
  const auto keys = simulation_keys();
  return equals != std::string::npos &&
         std::find(keys.begin(), keys.end(), text.substr(0, equals)) != keys.end();
}

// A flag with an optional value, so that it never takes the command for its value.
void add_sim_flag(CLI::App& command, std::string& settings, const std::string& help) {
  command.add_flag("--sim", settings, help)->multi_option_policy(CLI::MultiOptionPolicy::Join);
}

bool set_simulation(std::string settings) {
  std::replace(settings.begin(), settings.end(), '\n', ',');  // between those of several --sim
  std::size_t begin = 0;
  while (begin < settings.size()) {
    const std::size_t end = end_of_part(settings, begin);
    const std::string part = settings.substr(begin, end - begin);
    begin = end + 1;
    if (part == "true") continue;  // the flag without a value
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      say(fmt::format("--sim={}: each part is NAME=VALUE, for example devices=2,memory=8G",
                      settings));
      return false;
    }
    std::string key = part.substr(0, equals);
    for (char& letter : key) letter = lower_of(letter);
    const auto keys = simulation_keys();
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      say(fmt::format("--sim={}: there is no setting '{}'; the settings are {}", settings,
                      printable(key), fmt::join(keys, ", ")));
      return false;
    }
    std::string name{sim_prefix};
    for (const char letter : key) name += upper(letter);
    if (!set_option(name, part.substr(equals + 1), "--sim=" + key)) return false;
  }
  return true;
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
