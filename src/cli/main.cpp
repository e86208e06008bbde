// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <numeric>
#include <system_error>
#include <utility>

#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cuvmm/version.h"
#include "usage/help_format.hpp"
#include "usage/wrong_usage.hpp"

namespace cuvmm::cli {
namespace {

// The number of letters to insert, remove or replace.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// " (did you mean pause?)"; of equally close names, one with the same beginning. Empty if none is
// close.
std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  constexpr std::size_t farthest = 2;
  const std::size_t letter = word.find_first_not_of('-');
  std::pair best{farthest + 1, true};
  std::string name;
  for (const std::string& one : names) {
    const bool differs = letter < word.size() && one.compare(letter, 1, word, letter, 1) != 0;
    const std::pair rank{distance(word, one), differs};
    const std::size_t letters = word.size() - std::min(letter, word.size());
    const bool is_close = 2 * rank.first <= letters || (!differs && rank.first < letters);
    if (is_close && rank < best) {
      best = rank;
      name = one;
    }
  }
  return name.empty() ? "" : " (did you mean " + name + "?)";
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(one->get_name());
  }
  return names;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* one : app.get_options()) {
    for (const std::string& name : one->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string without_beginning(const std::string& text, std::string_view beginning) {
  return text.starts_with(beginning) ? text.substr(beginning.size()) : text;
}

// What is wrong with the arguments, in one line.
std::string usage_error(const CLI::App& app, const CLI::Error& error) {
  const auto chosen = app.get_subcommands();
  const CLI::App& of = chosen.empty() ? app : *chosen.front();
  std::string word = usage::unexpected(of);
  // A misspelt option leads to other errors too, since its value is taken for an argument.
  const bool is_extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (!is_extra && !chosen.empty() && !word.starts_with('-')) word.clear();
  if (chosen.empty() && !word.empty() && !word.starts_with('-')) {
    const std::string close = suggestion(word, commands_of(app));
    return printable(word) + ": there is no such command" +
           (close.empty() ? "; `cuvmm --help` lists the commands" : close);
  }
  const std::string help = chosen.empty() ? "`cuvmm --help` lists the commands"
                                          : "see `cuvmm " + of.get_name() + " --help`";
  if (word.empty() && is_extra) {
    return printable(usage::unexpected(app)) + ": not expected before the command; " + help;
  }
  if (word.empty()) {
    std::string what = without_beginning(usage::problem_of(error), "process: ");
    const bool lacks_words = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr ||
                             dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
    if (!lacks_words) return what;
    return (chosen.empty() ? "a command is required" : what) + "; " + help;
  }
  const std::string known = word.starts_with("--") ? suggestion(word, flags_of(of)) : "";
  return fmt::format("{}: not expected{}; `cuvmm{} --help` lists the options", printable(word),
                     known, chosen.empty() ? "" : " " + of.get_name());
}

// `cuvmm help` and `cuvmm help COMMAND` are `cuvmm --help` and `cuvmm COMMAND --help`.
std::vector<std::string> arguments_of(int count, char** words) {
  std::vector<std::string> arguments{words + 1, words + count};
  if (arguments.empty() || arguments.front() != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
  return arguments;
}

int run(int count, char** words) {
  CLI::App app{"separate a CUDA program's addresses from the memory behind them", "cuvmm"};
  app.set_version_flag("--version", "cuvmm " CUVMM_VERSION_STRING);
  app.formatter(std::make_shared<usage::HelpFormat>());
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
    std::vector<std::string> arguments = arguments_of(count, words);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    // Requests for help or the version succeed; everything else is wrong usage.
    if (error.get_exit_code() == 0) return app.exit(error);
    say(usage_error(app, error));
    return exit_usage;
  }
  return exit_status;
}

void say_output_failed(const std::string& why) {
  say("standard output: " + why);
}

// A full disk must not look like success. `exit_status` is the command's.
int with_written_output(int exit_status) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_status;
  say_output_failed(errno != 0 ? std::strerror(errno) : "not all output could be written");
  return exit_status == 0 ? exit_failed : exit_status;
}

}  // namespace
}  // namespace cuvmm::cli

int main(int count, char** words) {
  try {
    return cuvmm::cli::with_written_output(cuvmm::cli::run(count, words));
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) {
      cuvmm::cli::say_output_failed(error.code().message());
    } else {
      cuvmm::cli::say(error.what());
    }
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuvmm: %s\n", error.what());
    return 1;
  }
}
