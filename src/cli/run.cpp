// SPDX-License-Identifier: Apache-2.0
// cuvmm run: a command with the preload library in front of it.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/options.hpp"
#include "base/sim_options.hpp"
#include "cli/child.hpp"
#include "cli/commands.hpp"
#include "cli/driver_here.hpp"
#include "cli/environment.hpp"
#include "cli/frameworks.hpp"
#include "cli/install_places.hpp"
#include "cli/output.hpp"
#include "cli/preload_version.hpp"
#include "cli/run_summary.hpp"
#include "cli/sim_calls.hpp"
#include "cli/trace_names.hpp"
#include "cuvmm/version.h"

namespace cuvmm::cli {
namespace {

struct RunRequest {
  std::vector<std::string> command;
  // Options by the names that the library reads them by.
  std::map<std::string, std::string> options;
  bool simulated = false;
  bool frameworks = false;
  bool quiet = false;
  std::string simulation;  // devices=2,memory=8G
};

// A value that the library would refuse is refused here, where somebody can still mend it.
bool set_option(const std::string& name, const std::string& value) {
  Options options;
  SimOptions sim_options;
  auto problem = options.set(name, value, Origin::CommandLine);
  if (name.starts_with("VMM_SIM_")) problem = sim_options.set(name, value, Origin::CommandLine);
  if (!problem.has_value()) problem = problem_of_calls(name, value);
  if (problem.has_value()) {
    fmt::print(stderr, "cuvmm: {}\n", problem->text());
    return false;
  }
  setenv(name.c_str(), value.c_str(), 1);
  return true;
}

// "devices=2,memory=8G" as VMM_SIM_DEVICES and VMM_SIM_MEMORY.
bool set_simulation(const std::string& text) {
  if (text == "true") return true;  // the flag without a value
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      fmt::print(stderr, "cuvmm: --sim={}: each part is NAME=VALUE, as in devices=2,memory=8G\n",
                 text);
      return false;
    }
    std::string name = "VMM_SIM_" + part.substr(0, equals);
    for (char& letter : name)
      letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    if (!set_option(name, part.substr(equals + 1))) return false;
    begin = end + 1;
  }
  return true;
}

// Everything is in the environment; what is left is to run it and to say what it came to.
int run_under_us(const RunRequest& request) {
  const char* trace = std::getenv("VMM_TRACE_FILE");
  const TraceNames traces{trace != nullptr ? trace : ""};
  FrameworkWatch frameworks;
  pid_t process = 0;
  const int status = run_child(request.command, [&](pid_t child) {
    process = child;
    if (frameworks.is_needed() && !request.quiet) frameworks.look_at(child);
  });
  if (const std::string instead = traces.what_was_written_instead(); !instead.empty()) say(instead);
  if (request.quiet) return status;
  if (trace != nullptr) print_run_summary(traces.written(process));
  if (const std::string suggestion = frameworks.suggestion(); !suggestion.empty()) say(suggestion);
  return status;
}

int run(const RunRequest& request) {
  const auto preload = find_preload_library();
  if (!preload.ok()) {
    fmt::print(stderr, "cuvmm: {}\n", preload.error().text());
    return exit_ours;
  }
  if (version_of_preload(*preload) != CUVMM_VERSION_STRING) {
    fmt::print(stderr, "cuvmm: {} is of another version than this program, which is {}\n", *preload,
               CUVMM_VERSION_STRING);
  }
  for (const auto& [name, value] : request.options) {
    if (value.empty()) continue;
    if (!set_option(name, value)) return exit_usage;
  }
  if (request.simulated) {
    const auto directory = find_sim_directory();
    if (!directory.ok()) {
      fmt::print(stderr, "cuvmm: {}\n", directory.error().text());
      return exit_ours;
    }
    if (!set_simulation(request.simulation)) return exit_usage;
    put_first("LD_LIBRARY_PATH", *directory);
  } else if (!has_driver()) {
    fmt::print(
        stderr,
        "cuvmm: this machine has no CUDA driver; --sim runs the program on a simulated one\n");
  }
  if (request.frameworks) {
    const std::string done = let_frameworks_use_the_driver();
    if (!request.quiet) say(done);
  }
  cli::preload(*preload);
  return run_under_us(request);
}

}  // namespace

void add_run(CLI::App& app, int& exit_status) {
  auto request = std::make_shared<RunRequest>();
  CLI::App* command = app.add_subcommand("run", "run a program with its GPU memory seen by cuvmm");
  command->footer(
      "Examples:\n"
      "  cuvmm run --frameworks -- python train.py\n"
      "  cuvmm run --limit 16G --trace run.trace -- python train.py\n"
      "  cuvmm run --sim=devices=2,memory=8G -- ./program\n"
      "  cuvmm run --sim=memory=8G,card=mine -- ./program   (and another one beside it)\n"
      "  cuvmm run --mode monitor --trace before.trace -- ./program\n"
      "\n"
      "Exit status: the program's own; 128+N after signal N; 125 if cuvmm fails, 126 if the\n"
      "program cannot be executed, 127 if it is not found, 2 on wrong usage.");
  // A flag that may carry a value, so that it never takes the command for one.
  command->add_flag("--sim", request->simulation,
                    "run on the simulated driver; --sim=devices=2,memory=8G sets what it has, and "
                    "card=NAME lets all programs that name it share one card");
  const auto option = [&](const char* flag, const char* name, const char* type, const char* text) {
    command->add_option(flag, request->options[name], text)->type_name(type);
  };
  option("--mode", "VMM_MODE", "vmm|monitor|off",
         "vmm serves memory, monitor only records, off does nothing");
  option("--limit", "VMM_LIMIT", "SIZE", "physical memory of each device, as 16G or 80%");
  option("--spill", "VMM_SPILL", "off|host|peer|auto[:SIZE]",
         "where memory goes that the device has no room for, and how much at the most");
  command->add_flag_callback(
      "--control", [request] { request->options["VMM_CONTROL"] = "on"; },
      "let `cuvmm pause` and `cuvmm resume` reach the program");
  option("--trace", "VMM_TRACE_FILE", "FILE", "record every event; %p is the process, %h the host");
  option("--log-level", "VMM_LOG_LEVEL", "error|warning|info|debug", "how much is logged");
  option("--log-file", "VMM_LOG_FILE", "FILE", "where it is logged, else standard error");
  option("--schedule", "VMM_SCHEDULE", "POLICY",
         "policy by which clients' work is issued: off, fifo, round_robin, priority, fair");
  command->add_flag("--frameworks", request->frameworks,
                    "let PyTorch and JAX take stream-ordered memory, which cuvmm serves; what is "
                    "set already stays");
  command->add_flag("-q,--quiet", request->quiet, "say nothing but what went wrong");
  command->add_option("command", request->command, "the program and its arguments")
      ->required()
      ->type_name("COMMAND");
  command->positionals_at_end();
  command->callback([request, command, &exit_status] {
    request->simulated = command->count("--sim") != 0;
    exit_status = run(*request);
  });
}

}  // namespace cuvmm::cli
