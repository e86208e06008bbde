// SPDX-License-Identifier: Apache-2.0
// cuvmm run: runs a command with the preload library.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/options.hpp"
#include "base/sim_flag.hpp"
#include "base/text.hpp"
#include "cli/child.hpp"
#include "cli/commands.hpp"
#include "cli/driver_here.hpp"
#include "cli/environment.hpp"
#include "cli/frameworks.hpp"
#include "cli/install_places.hpp"
#include "cli/node_view.hpp"
#include "cli/output.hpp"
#include "cli/preload_version.hpp"
#include "cli/run_summary.hpp"
#include "cli/settings.hpp"
#include "cli/trace_names.hpp"
#include "cuvmm/version.h"

namespace cuvmm::cli {
namespace {

struct RunRequest {
  std::vector<std::string> command;
  // Options by their names in the environment.
  std::map<std::string, std::string> options;
  bool frameworks = false;
  bool quiet = false;
  bool needs_driver = false;
  std::string simulation;  // devices=2,memory=8G
  std::string stacks;      // "true" for the flag without a value
};

// The flag that sets an option: --trace for VMM_TRACE_FILE, --log-level for VMM_LOG_LEVEL.
std::string flag_of(const std::string& name) {
  if (name == "VMM_TRACE_FILE") return "--trace";
  std::string flag = "--";
  for (const char letter : name.substr(std::string_view{"VMM_"}.size())) {
    flag += letter == '_' ? '-' : lower(letter);
  }
  return flag;
}

// The program may change its folder before it opens these files. In their names, %% means %.
void make_file_names_absolute() {
  std::error_code failed;
  std::string folder;
  for (const char letter : std::filesystem::current_path(failed).string()) {
    folder += letter == '%' ? "%%" : std::string{letter};
  }
  for (const char* name : {"VMM_TRACE_FILE", "VMM_LOG_FILE"}) {
    const char* file = std::getenv(name);
    if (failed || file == nullptr || *file == '\0' || *file == '/') continue;
    setenv(name, (folder + "/" + file).c_str(), 1);
  }
}

// Whether a program that calls the driver would record its events in that file.
bool may_record(const std::string& trace) {
  std::error_code none;
  const bool is_device = std::filesystem::exists(trace, none) &&  // /dev/null
                         !std::filesystem::is_regular_file(trace, none);
  return !is_device && Options::from_environment().mode != Mode::Off;
}

// What is left to do once the program has ended.
struct Afterwards {
  std::string trace;
  FrameworkWatch frameworks;

  bool has_summary(const RunRequest& request) const { return !request.quiet && !trace.empty(); }
  // Advice alone is for somebody who looks on.
  bool has_advice(const RunRequest& request) const {
    return !request.quiet && frameworks.is_needed() &&
           (has_summary(request) || isatty(STDERR_FILENO) != 0);
  }
};

// Runs the command as a child, waits for it, and prints the summary and the advice.
ChildEnd run_to_its_end(const RunRequest& request, const TraceNames& traces, Afterwards& after) {
  pid_t process = 0;
  const bool advises = after.has_advice(request);
  const ChildEnd end = run_child(request.command, [&](pid_t child) {
    process = child;
    if (advises && after.frameworks.is_needed()) after.frameworks.look_at(child);
  });
  if (const std::string instead = traces.renamed_note(); !instead.empty()) say(instead);
  if (after.has_summary(request)) {
    const auto written = traces.written(process);
    print_run_summary(written);
    const bool was_run = end.status != exit_not_found && end.status != exit_not_executable;
    if (written.empty() && was_run && may_record(after.trace)) {
      say("no trace was written: the program made no driver call, or the file cannot be created");
    }
  }
  if (const std::string advice = after.frameworks.suggestion(); !advice.empty()) say(advice);
  return end;
}

// Runs the command, with all options already in the environment. If nothing is left to do once it
// ends, the command replaces this process, so its parent, process group, timers and signals are the
// same as without cuvmm.
int run_under_us(const RunRequest& request) {
  const char* file = std::getenv("VMM_TRACE_FILE");
  const std::string trace = file != nullptr ? file : "";
  const TraceNames traces{trace};
  const char* const log = std::getenv("VMM_LOG_FILE");
  for (const std::string& path : {trace, std::string{log != nullptr ? log : ""}}) {
    if (std::error_code none; std::filesystem::is_directory(path, none)) {
      say(fmt::format("{}: is a folder; name a file", path));
      return exit_ours;
    }
    const std::string folder = TraceNames{path}.missing_folder();
    if (folder.empty()) continue;
    say(fmt::format("{}: there is no folder {}", path, folder));
    return exit_ours;
  }
  if (const auto can = traces.check_folder(); !can) {
    say(can.error().text());
    return exit_ours;
  }
  traces.mark_environment();
  make_file_names_absolute();
  Afterwards after{.trace = trace, .frameworks = {}};
  if (!after.has_summary(request) && !after.has_advice(request) && !traces.is_taken()) {
    std::fflush(nullptr);
    become(request.command);
  }
  const ChildEnd end = run_to_its_end(request, traces, after);
  if (end.signal != 0) end_by_signal(end.signal);
  return end.status;
}

bool sample_stacks(const std::string& how) {
  if (const char* trace = std::getenv("VMM_TRACE_FILE"); trace == nullptr || *trace == '\0') {
    say("--stacks needs --trace FILE, to record the stacks in");
    return false;
  }
  return set_option("VMM_STACKS", how == "true" ? "on" : how, "--stacks");
}

// Whether the flags of the request make sense together.
bool is_consistent(const RunRequest& request) {
  const auto value = [&](const char* name) {
    return without_outer_blanks(request.options.at(name));
  };
  if (Options::from_environment().mode == Mode::Off &&
      (!value("VMM_TRACE_FILE").empty() || !request.stacks.empty())) {
    say("mode off records nothing; use --mode monitor with --trace");
    return false;
  }
  const auto guarantee = OptionType<Bytes>::read(value("VMM_GUARANTEE"));
  const auto limit = OptionType<Bytes>::read(value("VMM_LIMIT"));
  if (guarantee && limit && guarantee->value > limit->value) {
    say(fmt::format("--guarantee {} exceeds --limit {}", value("VMM_GUARANTEE"),
                    value("VMM_LIMIT")));
    return false;
  }
  if (request.simulation == "true" && is_sim_setting(request.command.front())) {
    say("settings follow --sim after an equals sign: --sim=" + printable(request.command.front()));
    return false;
  }
  return true;
}

// Names the flags that the mode makes meaningless.
void warn_of_mode(const RunRequest& request) {
  const Mode mode = Options::from_environment().mode;
  if (mode == Mode::Vmm) return;
  std::vector<std::string> flags;
  for (const auto& [name, value] : request.options) {
    const auto is_among = [&one = name](std::initializer_list<const char*> names) {
      return std::find(names.begin(), names.end(), one) != names.end();
    };
    const bool has_effect = is_among({"VMM_MODE", "VMM_LOG_LEVEL", "VMM_LOG_FILE"}) ||
                            (mode == Mode::Monitor && is_among({"VMM_TRACE_FILE", "VMM_SCHEDULE",
                                                                "VMM_PRIORITY", "VMM_WEIGHT"}));
    if (!value.empty() && !has_effect) flags.push_back(flag_of(name));
  }
  if (flags.empty()) return;
  say(fmt::format("{} {} no effect in mode {}", fmt::join(flags, ", "),
                  flags.size() == 1 ? "has" : "have", OptionType<Mode>::print(mode)));
}

// Names the flags that need the node service if there is none.
void warn_of_missing_service(const RunRequest& request) {
  const Options options = Options::from_environment();
  if (options.node == NodeUse::Require) return;  // the program itself fails
  std::vector<std::string> flags;
  for (const char* name : {"VMM_GUARANTEE", "VMM_CAP", "VMM_WEIGHT", "VMM_GROUP"}) {
    const bool is_for_scheduler =
        name == std::string_view{"VMM_WEIGHT"} && options.schedule != Schedule::Off;
    if (!request.options.at(name).empty() && !is_for_scheduler) flags.push_back(flag_of(name));
  }
  if (flags.empty()) return;
  const auto node = look_at_node();
  if (node.ok() || node.error().kind != ErrorKind::NotFound) return;
  say(fmt::format("no cuvmmd is running: {} {} no effect", fmt::join(flags, ", "),
                  flags.size() == 1 ? "has" : "have"));
}

int run(const RunRequest& request) {
  const auto preload = find_preload_library();
  if (!preload.ok()) {
    say(preload.error().text());
    return exit_ours;
  }
  if (version_of_preload(*preload) != CUVMM_VERSION_STRING) {
    say(fmt::format("{} is of another version than this program, which is {}", *preload,
                    CUVMM_VERSION_STRING));
  }
  if (!request.quiet) warn_of_unknown_options();
  for (const auto& [name, value] : request.options) {
    if (value.empty()) continue;
    if (!set_option(name, value, flag_of(name))) return exit_usage;
  }
  const char* const limit = std::getenv("VMM_LIMIT");
  const auto problem = problem_of_value("VMM_LIMIT", limit != nullptr ? limit : "");
  if (problem && Options::from_environment().mode == Mode::Vmm) {
    say(fmt::format("VMM_LIMIT={} leaves the program no device memory: {}",
                    printable(problem->value), problem->why));
  }
  if (!is_consistent(request)) return exit_usage;
  if (!request.stacks.empty() && !sample_stacks(request.stacks)) return exit_usage;
  if (!request.simulation.empty()) {
    const auto directory = find_sim_directory();
    if (!directory.ok()) {
      say(directory.error().text());
      return exit_ours;
    }
    if (!set_simulation(request.simulation)) return exit_usage;
    put_first("LD_LIBRARY_PATH", *directory);
  } else if (const DriverHere driver = find_driver(); !driver.is_there) {
    const std::string why = driver.load_error.empty() ? "this machine has no CUDA driver"
                                                      : "the CUDA driver cannot be loaded: " +
                                                            printable(driver.load_error);
    if (!request.quiet || request.needs_driver) {
      say(why + "; --sim runs the program on a simulated one");
    }
    if (request.needs_driver) return exit_ours;
  }
  if (!request.quiet) warn_of_mode(request);
  if (!request.quiet) warn_of_missing_service(request);
  if (request.frameworks) {
    for (const std::string& line : let_frameworks_use_the_driver()) {
      if (!request.quiet) say(line);
    }
  }
  cli::preload(*preload);
  return run_under_us(request);
}

}  // namespace

void add_run(CLI::App& app, int& exit_status) {
  auto request = std::make_shared<RunRequest>();
  CLI::App* command = app.add_subcommand("run", "run a program under cuvmm");
  command->footer(
      "Examples:\n"
      "  cuvmm run --frameworks -- python train.py\n"
      "  cuvmm run --limit 16G --trace run.trace -- python train.py\n"
      "  cuvmm run --stacks --trace run.trace -- python train.py   (then: cuvmm stats --top "
      "run.trace)\n"
      "  cuvmm run --sim=devices=2,memory=8G -- ./program\n"
      "  cuvmm run --sim=memory=8G,card=mine -- ./program   (and another one beside it)\n"
      "  cuvmm run --name A --guarantee 10G --limit 40G -- ./program   (with cuvmmd)\n"
      "  cuvmm run --mode monitor --trace before.trace -- ./program\n"
      "\n"
      "--frameworks sets PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF to\n"
      "backend:cudaMallocAsync, and for JAX XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async and\n"
      "XLA_PYTHON_CLIENT_PREALLOCATE=false. If one of a framework's variables is set already, all\n"
      "of that framework's stay as they are. torch.cuda.memory_allocated() still works;\n"
      "torch.cuda.memory._snapshot() and _record_memory_history() do not with that backend:\n"
      "--trace records instead.\n"
      "\n"
      "With --trace, or on a terminal, cuvmm waits for the program, to print a summary or advice,\n"
      "and hands signals on; with --quiet, or without either, the program replaces it.\n"
      "\n"
      "Exit status: the program's own; it ends by the signal that ended the program; 125 if cuvmm\n"
      "fails, 126 if the program cannot be executed, 127 if it is not found, 2 on wrong usage.");
  add_sim_flag(*command, request->simulation,
               "run on the simulated driver; --sim=devices=2,memory=8G sets what it has, and "
               "card=NAME lets all programs that name it share one card");
  const auto option = [&](const char* flag, const char* name, const char* type, const char* text) {
    command->add_option(flag, request->options[name], text)
        ->type_name(type)
        ->check([](const std::string& value) { return value == "--" ? "needs a value" : ""; });
  };
  option("--mode", "VMM_MODE", "vmm|monitor|off",
         "vmm: serve memory; monitor: only record; off: do nothing");
  option("--limit", "VMM_LIMIT", "SIZE", "limit on physical memory of each device: 16G or 80%");
  option("--spill", "VMM_SPILL", "off|host|peer|auto[:SIZE]",
         "where memory goes when the device is full, and how much at most");
  command->add_flag_callback(
      "--control", [request] { request->options["VMM_CONTROL"] = "on"; },
      "accept `cuvmm pause` and `cuvmm resume`");
  option("--wait", "VMM_WAIT", "TIME", "how long an allocation waits for running work");
  option("--node", "VMM_NODE", "off|auto|require",
         "whether to lease device memory from the node service");
  option("--node-wait", "VMM_NODE_WAIT", "TIME",
         "how long an allocation waits for other programs' memory, their turns included");
  option("--name", "VMM_NAME", "NAME", "the program's name in the node service");
  option("--guarantee", "VMM_GUARANTEE", "SIZE", "guaranteed memory on each device (with cuvmmd)");
  option("--weight", "VMM_WEIGHT", "N",
         "its share of the devices' time, and of turns for memory (with cuvmmd)");
  option("--priority", "VMM_PRIORITY", "N",
         "memory is reclaimed from the lowest priority first; with cuvmmd --time priority, the "
         "highest runs "
         "first");
  option("--cap", "VMM_CAP", "PERCENT",
         "largest share of each device's time, even if no other program wants it (with cuvmmd)");
  option("--group", "VMM_GROUP", "NAME",
         "programs that wait for each other: they get and lose turns together (with cuvmmd)");
  option("--trace", "VMM_TRACE_FILE", "FILE",
         "record every event; %p expands to the process ID, %h to the host name");
  command->add_flag(
      "--stacks", request->stacks,
      "record in the trace who allocates: call stacks, of Python or compiled code, of "
      "a sample of the allocations; --stacks=256K records one for every 256 KiB "
      "allocated, --stacks=all every one");
  option("--log-level", "VMM_LOG_LEVEL", "error|warning|info|debug", "how much is logged");
  option("--log-file", "VMM_LOG_FILE", "FILE", "log to this file instead of standard error");
  option("--schedule", "VMM_SCHEDULE", "off|fifo|round_robin|priority|fair",
         "scheduling policy of clients' work");
  command->add_flag("--frameworks", request->frameworks,
                    "make PyTorch and JAX use stream-ordered memory, which cuvmm serves; disables "
                    "PyTorch's own cache and memory snapshots; keeps settings that you have made");
  command->add_flag("--require", request->needs_driver,
                    "fail, rather than warn, if this machine has no CUDA driver");
  command->add_flag("-q,--quiet", request->quiet,
                    "no summary and no notes; --log-level sets what is logged");
  command->add_option("command", request->command, "the program and its arguments")
      ->required()
      ->type_name("COMMAND");
  command->positionals_at_end();
  command->callback([request, command, &exit_status] { exit_status = run(*request); });
}

}  // namespace cuvmm::cli
