// SPDX-License-Identifier: Apache-2.0
// cuvmm generate: writes the shell completions and manual pages that the build installs. Hidden
// from --help.
#include <fmt/core.h>

#include "base/options.hpp"
#include "cli/commands.hpp"
#include "cli/completions.hpp"
#include "usage/manual.hpp"

namespace cuvmm::cli {
namespace {

using usage::DescribedCommand;
using usage::ManualPage;
using usage::ManualSection;
using Commands = std::vector<DescribedCommand>;  // the program itself is the first

std::string page_name(const Commands& commands, const DescribedCommand& of) {
  return &of == &commands.front() ? "cuvmm" : "cuvmm-" + of.name;
}

ManualSection list_of(const Commands& commands) {
  ManualSection section{.title = "COMMANDS", .text = {}, .entries = {}};
  for (std::size_t i = 1; i < commands.size(); ++i) {
    section.entries.push_back({commands[i].name, fmt::format("{} (see cuvmm-{}(1))",
                                                             commands[i].text, commands[i].name)});
  }
  return section;
}

ManualSection environment_variables() {
  ManualSection section{.title = "ENVIRONMENT",
                        .text = "What `cuvmm config` shows, and programs under cuvmm read:",
                        .entries = {}};
  for (const OptionValue& option : Options{}.list()) {
    section.entries.push_back({option.name, option.comment});
  }
  section.entries.push_back({"NO_COLOR", "no colours"});
  section.entries.push_back({"CUVMM_PYTHON", "the Python that draws"});
  return section;
}

std::string page_of(const Commands& commands, const DescribedCommand& of) {
  const bool is_program = &of == &commands.front();
  ManualPage page{.name = page_name(commands, of),
                  .command = is_program ? "cuvmm" : "cuvmm " + of.name,
                  .sections = {},
                  .see_also = {}};
  if (is_program) page.sections = {list_of(commands), environment_variables()};
  for (const DescribedCommand& other : commands) {
    if (&other != &of) page.see_also.push_back(page_name(commands, other) + "(1)");
  }
  page.see_also.emplace_back("cuvmmd(8)");
  DescribedCommand command = of;
  if (is_program) command.operand = {.type = "COMMAND", .is_required = true, .choices = {}};
  return usage::manual(page, command);
}

}  // namespace

void add_generate(CLI::App& app, int& exit_status) {
  auto what = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("generate", "completions and manuals")->group("");
  command->add_option("what", *what, "bash, zsh, fish, commands, man or man-COMMAND")->required();
  command->callback([&app, what, &exit_status] {
    const auto commands = usage::described(app);
    if (*what == "bash" || *what == "zsh" || *what == "fish") {
      fmt::print("{}", completions(commands, *what));
      return;
    }
    for (const DescribedCommand& one : commands) {
      const bool is_program = &one == &commands.front();
      if (*what == "commands" && !is_program) fmt::print("{}\n", one.name);
      if (*what == (is_program ? "man" : "man-" + one.name)) {
        fmt::print("{}", page_of(commands, one));
        return;
      }
    }
    exit_status = *what == "commands" ? 0 : 2;
  });
}

}  // namespace cuvmm::cli
