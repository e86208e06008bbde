// SPDX-License-Identifier: Apache-2.0
// cuvmm export: converts a trace to another program's format.
#include <fmt/core.h>

#include <algorithm>

#include "cli/any_trace.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "view/formats/export.hpp"

namespace cuvmm::cli {
namespace {

struct ExportRequest {
  std::string trace;
  std::string format;
  std::string out;
};

const char* what_to_do_next(view::ExportFormat format) {
  switch (format) {
    case view::ExportFormat::MemoryViz:
      return "drop it on https://pytorch.org/memory_viz";
    case view::ExportFormat::Chrome:
      return "open it at https://ui.perfetto.dev";
    case view::ExportFormat::RmmCsv:
      return "`cuvmm replay` reads it";
    case view::ExportFormat::Csv:
      return "one line for each event";
  }
  return "";
}

Result<void> write(view::Recording& recording, view::ExportFormat format, view::OutputFile& out,
                   const ExportRequest& request) {
  if (request.out == "-") return view::export_trace(recording, format, out);
  ProgressBar bar{"writing " + request.format};
  recording.tell_progress([&](double share) { bar.show(share); });
  const auto written = view::export_trace(recording, format, out);
  recording.tell_progress({});
  return written;
}

int export_to(const ExportRequest& request) {
  if (would_overwrite(request.out, {request.trace})) return exit_usage;
  if (lacks_folder(request.out)) return exit_failed;
  auto recording = open_any_recording(request.trace);
  if (!recording) {
    say(request.trace + ": " + recording.error().text());
    return 1;
  }
  auto out = view::OutputFile::create(request.out);
  if (!out) {
    say(request.out + ": " + out.error().text());
    return 1;
  }
  const auto format = static_cast<view::ExportFormat>(
      std::find(view::format_names.begin(), view::format_names.end(), request.format) -
      view::format_names.begin());
  const auto written = write(*recording, format, *out, request);
  if (!written) {
    say(request.trace + ": " + written.error().text());
    return 1;
  }
  if (const auto finished = out->finish(); !finished) {
    say(request.out + ": " + finished.error().text());
    return 1;
  }
  if (const std::string note = recording->note(); !note.empty()) say(request.trace + ": " + note);
  if (request.out != "-") say(fmt::format("{}: {}", request.out, what_to_do_next(format)));
  return 0;
}

}  // namespace

void add_export(CLI::App& app, int& exit_status) {
  auto request = std::make_shared<ExportRequest>();
  CLI::App* command = app.add_subcommand("export", "write a trace in another program's format");
  command->footer(
      "Formats:\n"
      "  memory_viz  a snapshot for PyTorch's memory viewer, https://pytorch.org/memory_viz\n"
      "  chrome      trace events for https://ui.perfetto.dev and chrome://tracing\n"
      "  rmm-csv     RMM's log, which `cuvmm replay` reads\n"
      "  csv         every event with all its fields\n"
      "\n"
      "Examples:\n"
      "  cuvmm export --format memory_viz run.trace -o run.pickle\n"
      "  cuvmm export --format csv run.trace -o - | head");
  command->add_option("--format", request->format, "output format")
      ->required()
      ->check(CLI::IsMember({"memory_viz", "chrome", "rmm-csv", "csv"}));
  command->add_option("-o,--output", request->out, "the file to write; - is standard output")
      ->required()
      ->type_name("FILE");
  command->add_option("trace", request->trace, "a file from `cuvmm run --trace`, PyTorch or RMM")
      ->required()
      ->type_name("TRACE");
  command->callback([request, &exit_status] { exit_status = export_to(*request); });
}

}  // namespace cuvmm::cli
