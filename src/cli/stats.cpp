// SPDX-License-Identifier: Apache-2.0
// cuvmm stats: what a trace comes to, without looking at the whole of it.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/trace_summary.hpp"
#include "cli/work_summary.hpp"
#include "cuvmm/version.h"
#include "trace/reader.hpp"

namespace cuvmm::cli {
namespace {

// One process' trace, read to its end.
struct Summary {
  TraceSummary memory;
  WorkSummary work;
};

nlohmann::json as_json(const TraceReader& trace, const Summary& summary) {
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
                           {"physical_peak_bytes", memory.physical_peak_bytes},
                           {"dropped_events", trace.health().dropped},
                           {"duration_us", memory.last_time_ns / 1000}};
  summary.work.add_to(object);
  return object;
}

void print_line(const char* what, const std::string& value) {
  fmt::print("{:<28} {:>14}\n", what, value);
}
void print_line(const char* what, std::uint64_t value) {
  print_line(what, fmt::format("{}", value));
}

void print_summary(const TraceReader& trace, const Summary& summary) {
  const TraceSummary& memory = summary.memory;
  std::string command;
  for (const std::string& word : trace.header().command) command += word + " ";
  fmt::print("{}(process {}, mode {})\n", command, trace.header().process, trace.header().mode);
  print_line("time", fmt::format("{:.3f} s", static_cast<double>(memory.last_time_ns) / 1e9));
  print_line("events", memory.events);
  if (trace.health().dropped > 0) print_line("events lost", trace.health().dropped);
  fmt::print("\nmemory\n");
  print_line("allocations granted", memory.allocations);
  print_line("allocations refused", memory.failed_allocations);
  print_line("frees", memory.frees);
  if (memory.failed_frees > 0) print_line("frees refused", memory.failed_frees);
  print_line("peak of live bytes", print_size(memory.live_peak_bytes));
  print_line("peak of physical bytes", print_size(memory.physical_peak_bytes));
  print_line("live at the end", print_size(memory.live_at_end()));
  fmt::print("\ncalls\n");
  summary.work.print();
}

int show(const std::string& path, bool json) {
  auto trace = TraceReader::open(path);
  if (!trace.ok()) {
    fmt::print(stderr, "cuvmm: {}: {}\n", path, trace.error().text());
    return 1;
  }
  Summary summary;
  const auto read = trace->for_each([&](const TraceRecord& record) {
    summary.memory.add(record);
    summary.work.add(record);
  });
  if (!read.ok()) {
    fmt::print(stderr, "cuvmm: {}: {}\n", path, read.error().text());
    return 1;
  }
  if (const std::string note = trace->note(); !note.empty()) {
    fmt::print(stderr, "cuvmm: {}: {}\n", path, note);
  }
  if (trace->header().library_version != CUVMM_VERSION_STRING) {
    fmt::print(stderr, "cuvmm: {}: written by cuvmm {}, this program is {}\n", path,
               trace->header().library_version, CUVMM_VERSION_STRING);
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
