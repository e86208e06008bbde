// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "cli/commands.hpp"
#include "cli/help_format.hpp"
#include "cli/output.hpp"
#include "cuvmm/version.h"

namespace cuvmm::cli {
namespace {

int run(int count, char** words) {
  CLI::App app{"cuvmm separates a CUDA program's addresses from the memory behind them.", "cuvmm"};
  app.set_version_flag("--version", "cuvmm " CUVMM_VERSION_STRING);
  app.formatter(std::make_shared<HelpFormat>());
  app.failure_message([](const CLI::App* of, const CLI::Error& error) {
    return "cuvmm: " + CLI::FailureMessage::simple(of, error);
  });
  app.require_subcommand(1);
  app.fallthrough(false);
  app.footer(
      "Examples:\n"
      "  cuvmm demo                                       what cuvmm does, without a GPU\n"
      "  cuvmm run -- python train.py                     run a program, serve its memory\n"
      "  cuvmm run --trace run.trace -- python train.py   and record every event\n"
      "  cuvmm plot run.trace -o run.png                  look at it\n"
      "\n"
      "Run `cuvmm COMMAND --help` for details.");
  int exit_status = 0;
  add_run(app, exit_status);
  add_config(app, exit_status);
  add_stats(app, exit_status);
  add_demo(app, exit_status);
  add_plot(app, exit_status);
  add_export(app, exit_status);
  add_replay(app, exit_status);
  add_advise(app, exit_status);
  add_doctor(app, exit_status);
  add_generate(app, exit_status);
  add_top(app, exit_status);
  add_metrics(app, exit_status);
  add_pause(app, exit_status);
  add_set(app, exit_status);
  add_cdi(app, exit_status);
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    // Requests for help or the version succeed; everything else is wrong usage.
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_status;
}

// A full disk must not look like success. `exit_status` is the command's.
int with_written_output(int exit_status) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_status;
  say(std::string{"standard output: "} + (errno != 0 ? std::strerror(errno) : "write failed"));
  return exit_status == 0 ? exit_failed : exit_status;
}

}  // namespace
}  // namespace cuvmm::cli

int main(int count, char** words) {
  try {
    return cuvmm::cli::with_written_output(cuvmm::cli::run(count, words));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuvmm: %s\n", error.what());
    return 1;
  }
}
