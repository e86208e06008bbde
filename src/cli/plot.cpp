// SPDX-License-Identifier: Apache-2.0
// cuvmm plot: draws traces. This program reads and thins them; the Python package draws them.
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/fd.hpp"
#include "cli/any_trace.hpp"
#include "cli/child.hpp"
#include "cli/commands.hpp"
#include "cli/environment.hpp"
#include "cli/install_places.hpp"
#include "cli/output.hpp"
#include "view/output_file.hpp"
#include "view/picture.hpp"

namespace cuvmm::cli {
namespace {

constexpr std::size_t most_traces = 4;

struct PlotRequest {
  std::vector<std::string> traces;
  std::string out;
  std::optional<std::int16_t> device;
  bool quiet = false;
};

ProgressBar* bar = nullptr;  // for the trace being read

bool has_ending(const std::string& path, std::initializer_list<const char*> endings) {
  const std::string ending = std::filesystem::path{path}.extension().string();
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

Result<view::Picture> picture_of(const std::string& path, const PlotRequest& request) {
  auto recording = TRY(open_any_recording(path));
  ProgressBar shown{"reading " + std::filesystem::path{path}.filename().string()};
  bar = &shown;
  return view::take_picture(recording, {.device = request.device},
                            [](double share) { bar->show(share); });
}

int write_data(const std::string& data, const PlotRequest& request) {
  auto file = view::OutputFile::create(request.out);
  if (file) file->write(data);
  const auto finished = file ? file->finish() : Result<void>{file.error()};
  if (!finished) {
    say(request.out + ": " + finished.error().text());
    return exit_failed;
  }
  if (!request.quiet) say("wrote " + request.out);
  return 0;
}

// Passes the data in an unnamed file, which the child inherits.
int draw(const std::string& data, const PlotRequest& request) {
  const auto package = find_python_package();
  if (!package) {
    say(package.error().text());
    return exit_failed;
  }
  const Fd file{::memfd_create("picture", 0)};
  std::size_t written = 0;
  while (file.is_open() && written < data.size()) {
    const ssize_t more = ::write(file.number(), data.data() + written, data.size() - written);
    if (more <= 0) break;
    written += static_cast<std::size_t>(more);
  }
  if (written < data.size()) {
    say("no memory for the picture's data");
    return exit_failed;
  }
  put_first("PYTHONPATH", *package);
  std::vector<std::string> command{find_python(*package),
                                   "-B",
                                   "-m",
                                   "cuvmm.plot",
                                   fmt::format("/dev/fd/{}", file.number()),
                                   "-o",
                                   request.out};
  for (const std::string& trace : request.traces) command.push_back("--label=" + trace);
  ::lseek(file.number(), 0, SEEK_SET);
  const ChildEnd end = run_part(command);
  if (end.status == exit_not_found) {
    const char* const chosen = std::getenv("CUVMM_PYTHON");
    say(chosen != nullptr && *chosen != '\0'
            ? "CUVMM_PYTHON names no Python that can be run"
            : "plots need python3, and for .png and .svg its package matplotlib");
  }
  if (end.signal != 0) {
    say(fmt::format("{} was killed: {}", command.front(), ::strsignal(end.signal)));
  }
  if (end.status != 0) return exit_failed;
  if (!request.quiet) say("wrote " + request.out);
  return 0;
}

int plot(const PlotRequest& request) {
  const bool is_data = has_ending(request.out, {".json"});
  if (!is_data && !has_ending(request.out, {".png", ".svg", ".html"})) {
    say(request.out + ": the output's name must end in .png, .svg, .html, or .json for the data");
    return exit_usage;
  }
  if (would_overwrite(request.out, request.traces)) return exit_usage;
  if (lacks_folder(request.out)) return exit_failed;
  std::vector<view::Picture> pictures;
  for (const std::string& trace : request.traces) {
    auto picture = picture_of(trace, request);
    if (!picture) {
      say(trace + ": " + picture.error().text());
      return exit_failed;
    }
    if (!picture->note.empty()) say(trace + ": " + picture->note);
    pictures.push_back(std::move(*picture));
  }
  const std::string data = view::to_json(pictures);
  return is_data ? write_data(data, request) : draw(data, request);
}

}  // namespace

void add_plot(CLI::App& app, int& exit_status) {
  auto request = std::make_shared<PlotRequest>();
  auto device = std::make_shared<int>(-1);
  CLI::App* command =
      app.add_subcommand("plot", "draw traces: addresses, memory and sizes over time");
  command->footer(
      "Several traces stand side by side: before and after.\n"
      "\n"
      "Examples:\n"
      "  cuvmm plot run.trace -o run.png\n"
      "  cuvmm plot before.trace after.trace -o both.html\n"
      "\n"
      ".html is one file that needs no network; .json is what is drawn "
      "(docs/internals/picture_format.md).\n"
      "A log (VMM_LOG_FILE, at level INFO), PyTorch's memory snapshots and histories and RMM's\n"
      "logs can be drawn too. Needs python3, and matplotlib for .png and .svg.");
  command->add_option("-o,--output", request->out, "the file to write: .png, .svg, .html or .json")
      ->required()
      ->type_name("FILE");
  command->add_option("--device", *device, "the device to show; default: the first one used")
      ->check(CLI::Range(0, 1023));
  command->add_flag("-q,--quiet", request->quiet, "print only errors");
  command->add_option("trace", request->traces, "files from `cuvmm run --trace`, PyTorch or RMM")
      ->required()
      ->expected(1, most_traces)
      ->type_name("TRACE");
  command->callback([request, device, &exit_status] {
    if (*device >= 0) request->device = static_cast<std::int16_t>(*device);
    exit_status = plot(*request);
  });
}

}  // namespace cuvmm::cli
