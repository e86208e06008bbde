// SPDX-License-Identifier: Apache-2.0
// cuvmm config: prints every option, its value, and the value's origin.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/options.hpp"
#include "base/sim_flag.hpp"
#include "base/sim_options.hpp"
#include "cli/commands.hpp"
#include "cli/json_text.hpp"
#include "cli/output.hpp"
#include "cli/settings.hpp"
#include "cli/sim_calls.hpp"

namespace cuvmm::cli {
namespace {

bool differs(const OptionValue& row) {
  return row.value != row.default_value;
}

// Prints the options that differ from their defaults, or those that do not. Returns whether there
// were any.
bool print_rows(const std::vector<OptionValue>& rows, bool that_differ) {
  bool has_printed = false;
  for (const OptionValue& row : rows) {
    if (differs(row) != that_differ) continue;
    fmt::print("{:<19} {:<12} {:<12} {}\n", row.name,
               row.value.empty() ? "-" : printable(row.value), name_of(row.origin), row.comment);
    has_printed = true;
  }
  return has_printed;
}

nlohmann::json as_json(const std::vector<OptionValue>& rows) {
  auto list = nlohmann::json::array();
  for (const OptionValue& row : rows) {
    list.push_back({{"name", row.name},
                    {"value", row.value},
                    {"default", row.default_value},
                    {"allowed", row.allowed},
                    {"origin", name_of(row.origin)},
                    {"comment", row.comment}});
  }
  return list;
}

// Prints refused values in one line each, just as a program under cuvmm would.
template <class Table>
int say_problems(const Table& table) {
  std::vector<OptionProblem> problems = table.problems();
  for (const OptionValue& row : table.list()) {
    if (auto problem = problem_of_value(row.name, row.value)) problems.push_back(*problem);
  }
  for (const OptionProblem& problem : problems) {
    say(problem.text());
  }
  return problems.empty() ? 0 : exit_usage;
}

// `simulation` is the value of --sim; empty without it. It has been set in the environment.
int show(bool json, const std::string& simulation) {
  const Options options = Options::from_environment();
  SimOptions sim_options = SimOptions::from_environment();
  std::vector<SimSetting> settings;
  static_cast<void>(split_sim_flag(simulation, settings));
  for (const SimSetting& one : settings) {
    static_cast<void>(sim_options.set(one.variable, one.value, Origin::CommandLine));
  }
  if (json) {
    const nlohmann::json all = {{"schema", 1},
                                {"options", as_json(options.list())},
                                {"sim_options", as_json(sim_options.list())}};
    fmt::print("{}\n", json_text(all));
  } else {
    fmt::print("{:<19} {:<12} {:<12} {}\n", "OPTION", "VALUE", "FROM", "WHAT IT DOES");
    const bool any = print_rows(options.list(), true);
    if (print_rows(sim_options.list(), true) || any) fmt::print("\n");
    print_rows(options.list(), false);
    if (!simulation.empty()) print_rows(sim_options.list(), false);
  }
  warn_of_unknown_options();
  const int problems = say_problems(options);
  const int sim_problems = say_problems(sim_options);
  return problems != 0 ? problems : sim_problems;
}

}  // namespace

void add_config(CLI::App& app, int& exit_status) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("config", "show every option, its value, and where the value comes from");
  auto simulation = std::make_shared<std::string>();
  command->footer(
      "What differs from its default comes first. Of the simulated driver's options (VMM_SIM_...)\n"
      "only those are shown that differ, unless --sim is given; --json has all.\n"
      "\n"
      "Examples:\n"
      "  VMM_LIMIT=16G cuvmm config          how a setting would be read\n"
      "  cuvmm config --json | jq '.options[].name'");
  command->add_flag("--json", *json, "as JSON");
  add_sim_flag(*command, *simulation,
               "include the simulated driver's options; --sim=devices=2 as for `cuvmm run`");
  command->callback([json, simulation, &exit_status] {
    exit_status = set_simulation(*simulation) ? show(*json, *simulation) : exit_usage;
  });
}

}  // namespace cuvmm::cli
