// SPDX-License-Identifier: Apache-2.0
// cuvmm stats: what a trace comes to, without looking at the whole of it.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/trace_summary.hpp"
#include "trace/reader.hpp"

namespace cuvmm::cli {
namespace {

nlohmann::json as_json(const TraceReader& trace, const TraceSummary& summary) {
  return {{"schema", 1},
          {"mode", trace.header().mode},
          {"process", trace.header().process},
          {"events", summary.events},
          {"allocations", summary.allocations},
          {"failed_allocations", summary.failed_allocations},
          {"frees", summary.frees},
          {"failed_frees", summary.failed_frees},
          {"calls", summary.calls},
          {"live_bytes_at_end", summary.live_at_end()},
          {"live_peak_bytes", summary.live_peak_bytes},
          {"physical_peak_bytes", summary.physical_peak_bytes},
          {"dropped_events", trace.health().dropped},
          {"duration_us", summary.last_time_ns / 1000}};
}

void print_line(const char* what, const std::string& value) {
  fmt::print("{:<28} {:>14}\n", what, value);
}

void print_summary(const TraceReader& trace, const TraceSummary& summary) {
  std::string command;
  for (const std::string& word : trace.header().command) command += word + " ";
  fmt::print("{}(process {}, mode {})\n", command, trace.header().process, trace.header().mode);
  print_line("allocations granted", fmt::format("{}", summary.allocations));
  print_line("allocations refused", fmt::format("{}", summary.failed_allocations));
  print_line("frees", fmt::format("{}", summary.frees));
  print_line("peak of live bytes", print_size(summary.live_peak_bytes));
  print_line("peak of physical bytes", print_size(summary.physical_peak_bytes));
  print_line("live at the end", print_size(summary.live_at_end()));
  print_line("other calls", fmt::format("{}", summary.calls));
  print_line("events", fmt::format("{}", summary.events));
  print_line("time", fmt::format("{:.3f} s", static_cast<double>(summary.last_time_ns) / 1e9));
}

int show(const std::string& path, bool json) {
  auto trace = TraceReader::open(path);
  if (!trace.ok()) {
    fmt::print(stderr, "cuvmm: {}: {}\n", path, trace.error().text());
    return 1;
  }
  TraceSummary summary;
  const auto read = trace->for_each([&](const TraceRecord& record) { summary.add(record); });
  if (!read.ok()) {
    fmt::print(stderr, "cuvmm: {}: {}\n", path, read.error().text());
    return 1;
  }
  if (const std::string note = trace->note(); !note.empty()) {
    fmt::print(stderr, "cuvmm: {}: {}\n", path, note);
  }
  if (json) {
    fmt::print("{}\n", as_json(*trace, summary).dump(2));
  } else {
    print_summary(*trace, summary);
  }
  return 0;
}

}  // namespace

void add_stats(CLI::App& app, int& exit_status) {
  struct Request {
    std::string path;
    bool json = false;
  };
  auto request = std::make_shared<Request>();
  CLI::App* command = app.add_subcommand("stats", "show what a trace comes to");
  command->add_flag("--json", request->json, "one flat object, for programs");
  command->add_option("trace", request->path, "a file that `cuvmm run --trace` wrote")
      ->required()
      ->type_name("TRACE");
  command->callback([request, &exit_status] { exit_status = show(request->path, request->json); });
}

}  // namespace cuvmm::cli
