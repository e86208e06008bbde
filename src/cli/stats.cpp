// SPDX-License-Identifier: Apache-2.0
// cuvmm stats: summarizes a trace in one pass.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "cli/any_trace.hpp"
#include "cli/arena_summary.hpp"
#include "cli/client_summary.hpp"
#include "cli/commands.hpp"
#include "cli/foreign_stats.hpp"
#include "cli/json_text.hpp"
#include "cli/output.hpp"
#include "cli/run_summary.hpp"
#include "cli/stack_summary.hpp"
#include "cli/trace_summary.hpp"
#include "cli/work_summary.hpp"
#include "cuvmm/version.h"
#include "view/recording.hpp"

namespace cuvmm::cli {
namespace {

constexpr std::uint64_t records_a_report = 65'536;

struct StatsRequest {
  std::string path;
  bool json = false;
  std::string top_text;  // of --top; "true" for the flag without a value
  std::size_t top = 0;   // call stacks to show
};

// Reads --top=N. Prints a line on standard error if it is wrong.
bool read_top(StatsRequest& request) {
  constexpr std::size_t usual = 10;
  constexpr std::uint64_t most = 1'000'000;
  if (request.top_text.empty()) return true;
  std::string_view rest = request.top_text;
  const auto number = take_whole_number(rest);
  if (request.top_text == "true") {
    request.top = usual;
  } else if (number && rest.empty() && *number >= 1 && *number <= most) {
    request.top = static_cast<std::size_t>(*number);
  } else {
    say(fmt::format("--top={}: allowed: a number from 1 to {}", printable(request.top_text), most));
    return false;
  }
  return true;
}

// CLI11 takes the number of "--top 5 run.trace" for the trace.
int say_what_is_left(const StatsRequest& request, const std::string& left) {
  const bool is_number = request.path.find_first_not_of("0123456789") == std::string::npos;
  if (!request.top_text.empty() && is_number) {
    say(fmt::format("--top takes its number after an equals sign: --top={}", request.path));
  } else {
    say(printable(left) + ": not expected; `cuvmm stats --help` lists the options");
  }
  return exit_usage;
}

// The totals of one process' trace.
struct Summary {
  TraceSummary memory;
  ArenaSummary arenas;
  WorkSummary work;
  ClientSummary clients;
};

nlohmann::json as_json(const view::Recording& trace, const Summary& summary) {
  const TraceSummary& memory = summary.memory;
  nlohmann::json object = {{"schema", 1},
                           {"mode", trace.header().mode},
                           {"process", trace.header().process},
                           {"events", memory.events},
                           {"allocations", memory.allocations},
                           {"failed_allocations", memory.failed_allocations},
                           {"frees", memory.frees},
                           {"failed_frees", memory.failed_frees},
                           {"live_bytes_at_end", memory.live_at_end()},
                           {"live_peak_bytes", memory.live_peak_bytes},
                           {"physical_peak_bytes", nullptr},
                           {"utilisation", nullptr},
                           {"spilled_peak_bytes", memory.spilled_peak_bytes},
                           {"dropped_events", trace.health().dropped},
                           {"duration_us", memory.last_time_ns / 1000}};
  if (!memory.is_native()) object["physical_peak_bytes"] = memory.physical_peak_bytes;
  const auto used = memory.utilisation();
  if (used) object["utilisation"] = *used;
  summary.arenas.add_to(trace.header(), object);
  summary.work.add_to(object);
  summary.clients.add_to(trace.header(), object);
  return object;
}

void print_line(const char* what, const std::string& value) {
  fmt::print("{:<28} {:>14}\n", what, value);
}
void print_line(const char* what, std::uint64_t value) {
  print_line(what, fmt::format("{}", value));
}

void print_summary(const view::Recording& trace, const Summary& summary) {
  const TraceSummary& memory = summary.memory;
  std::string command;
  for (const std::string& word : trace.header().command) command += printable(word) + " ";
  const std::string& mode = trace.header().mode;  // a log does not have it
  fmt::print("{}(process {}{})\n", command, trace.header().process,
             mode.empty() ? "" : ", mode " + printable(mode));
  print_line("time", fmt::format("{:.3f} s{}", static_cast<double>(memory.last_time_ns) / 1e9,
                                 note_on_times(trace.header())));
  print_line("events", memory.events);
  if (trace.health().dropped > 0) print_line("events lost", trace.health().dropped);
  fmt::print("\nmemory\n");
  print_line("allocations granted", memory.allocations);
  print_line("allocations refused", memory.failed_allocations);
  print_line("frees", memory.frees);
  if (memory.failed_frees > 0) print_line("frees refused", memory.failed_frees);
  print_line("peak of live bytes", print_size(memory.live_peak_bytes));
  print_line(memory.is_native() ? "peak requested of the driver" : "peak of physical bytes",
             print_size(memory.physical_peak_bytes));
  const auto used = memory.utilisation();
  print_line("peak utilization", used ? fmt::format("{:.1f}%", 100 * *used) : "not known");
  if (memory.spilled_peak_bytes > 0) {
    print_line("peak of spilled bytes", print_size(memory.spilled_peak_bytes));
  }
  print_line("live at the end", print_size(memory.live_at_end()));
  summary.arenas.print(trace.header());
  fmt::print("\ncalls\n");
  summary.work.print();
  summary.clients.print(trace.header());
}

int show_recording(const StatsRequest& request, view::Recording recording) {
  const std::string& path = request.path;
  auto* const trace = &recording;
  Summary summary;
  view::StackUses stacks;
  ProgressBar bar{"reading"};
  while (const TraceRecord* record = trace->next()) {
    summary.memory.add(*record);
    summary.arenas.add(*record);
    summary.work.add(*record);
    summary.clients.add(*record);
    if (request.top > 0) stacks.add(*record);
    if (summary.memory.events % records_a_report == 0) {
      bar.show(static_cast<double>(summary.memory.events) /
               static_cast<double>(trace->record_count()));
    }
  }
  const std::string note = trace->note();
  if (!trace->status().ok()) {
    say(path + ": " + trace->status().error().text());
    return 1;
  }
  if (!note.empty()) say(path + ": " + note);
  if (summary.memory.events == 0 && !trace->health().is_finished) return 1;
  const std::string& version = trace->header().library_version;
  if (!version.empty() && version != CUVMM_VERSION_STRING) {
    say(fmt::format("{}: written by cuvmm {}, this program is {}", path, version,
                    CUVMM_VERSION_STRING));
  }
  if (request.json) {
    auto object = as_json(*trace, summary);
    if (request.top > 0) add_stacks_to(trace->header(), stacks, request.top, object);
    // Names in a trace may contain arbitrary bytes.
    fmt::print("{}\n", json_text(object));
  } else {
    print_summary(*trace, summary);
    if (request.top > 0) print_stacks(trace->header(), stacks, request.top);
  }
  return 0;
}

int show(const StatsRequest& request) {
  auto any = open_any_trace(request.path);
  if (!any.ok()) {
    say(request.path + ": " + any.error().text());
    return 1;
  }
  if (auto* const ours = std::get_if<view::Recording>(&*any)) {
    return show_recording(request, std::move(*ours));
  }
  print_foreign_stats(std::get<replay::ReplayTrace>(*any), request.json);
  return 0;
}

}  // namespace

void add_stats(CLI::App& app, int& exit_status) {
  auto request = std::make_shared<StatsRequest>();
  CLI::App* command = app.add_subcommand("stats", "summarize a trace");
  command->footer(
      "Examples:\n"
      "  cuvmm stats run.trace\n"
      "  cuvmm stats --json run.trace | jq .live_peak_bytes\n"
      "  cuvmm stats --top run.trace       (of `cuvmm run --stacks --trace run.trace`)\n"
      "\n"
      "Arenas serve stream-ordered memory, windows serve blocking memory. For each: bytes that "
      "the\n"
      "program holds, free bytes that are mapped, free bytes that were moved, live bytes that "
      "were\n"
      "compacted.\n"
      "\n"
      "A trace whose end is missing is read to its last whole record. PyTorch's memory snapshots\n"
      "and histories and RMM's logs are read too.\n"
      "\n"
      "Exit status: 0, or 1 if nothing can be read.");
  command->add_flag("--json", request->json, "print one flat JSON object");
  command->add_flag("--top", request->top_text,
                    "also show the call stacks that hold most memory at the peak, if the trace has "
                    "stacks; --top=N shows N of them, not 10");
  command
      ->add_option("trace", request->path,
                   "a file written by `cuvmm run --trace` or `--log-file`, by PyTorch or by RMM")
      ->required()
      ->type_name("TRACE");
  command->allow_extras();
  command->callback([request, command, &exit_status] {
    auto left = command->remaining();
    std::erase(left, "--");
    if (!left.empty()) {
      exit_status = say_what_is_left(*request, left.front());
    } else {
      exit_status = read_top(*request) ? show(*request) : exit_usage;
    }
  });
}

}  // namespace cuvmm::cli
