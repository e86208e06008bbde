// SPDX-License-Identifier: Apache-2.0
// cuvmm generate: writes the shell completions and manual pages that the build installs. Hidden
// from --help.
#include <fmt/core.h>

#include "cli/commands.hpp"
#include "cli/described.hpp"

namespace cuvmm::cli {

void add_generate(CLI::App& app, int& exit_status) {
  auto what = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("generate", "completions and manuals")->group("");
  command->add_option("what", *what, "bash, zsh, fish, commands, man or man-COMMAND")->required();
  command->callback([&app, what, &exit_status] {
    const auto commands = described(app);
    if (*what == "bash" || *what == "zsh" || *what == "fish") {
      fmt::print("{}", completions(commands, *what));
      return;
    }
    for (const DescribedCommand& one : commands) {
      const bool is_program = &one == &commands.front();
      if (*what == "commands" && !is_program) fmt::print("{}\n", one.name);
      if (*what == (is_program ? "man" : "man-" + one.name)) {
        fmt::print("{}", manual(commands, one));
        return;
      }
    }
    exit_status = *what == "commands" ? 0 : 2;
  });
}

}  // namespace cuvmm::cli
