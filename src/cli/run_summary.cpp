// SPDX-License-Identifier: Apache-2.0
#include "cli/run_summary.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include "base/size.hpp"
#include "cli/output.hpp"
#include "cli/trace_summary.hpp"
#include "cli/work_summary.hpp"
#include "view/recording.hpp"

namespace cuvmm::cli {
namespace {

constexpr std::size_t most_traces = 1;  // of several processes, only the first is told of

void line(const char* what, const std::string& value) {
  fmt::print(stderr, "  {:<22} {}\n", what, value);
}

std::string in_shell(const std::string& path) {
  if (path.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "_-./+=:@%,") == std::string::npos) {
    return path;
  }
  std::string quoted = "'";
  for (const char letter : path) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

void print_one(const std::string& path) {
  auto trace = view::Recording::open(path);
  if (!trace) return;
  TraceSummary memory;
  WorkSummary work;
  while (const TraceRecord* record = trace->next()) {
    memory.add(*record);
    work.add(*record);
  }
  if (!trace->status() || memory.events == 0) return;
  say(in_tone(fmt::format("{} events in {:.3f} s", memory.events,
                          static_cast<double>(memory.last_time_ns) / 1e9),
              Tone::Strong, STDERR_FILENO));
  line("peak requested", print_size(memory.live_peak_bytes));
  line("peak physical",
       fmt::format("{}, {:.1f}% of it used", print_size(memory.physical_peak_bytes),
                   100 * memory.utilisation()));
  line("allocations", fmt::format("{}, {} refused", memory.allocations, memory.failed_allocations));
  const auto counted = [&](TraceEvent event) { return work.of(event).count; };
  if (const auto moves = counted(TraceEvent::Move) + counted(TraceEvent::Compact); moves > 0) {
    line("moved", fmt::format("{} times, {}", moves,
                              print_size(work.of(TraceEvent::Move).bytes +
                                         work.of(TraceEvent::Compact).bytes)));
  }
  if (const auto& elided = work.of(TraceEvent::CopyElided); elided.count > 0) {
    line("copies made needless", fmt::format("{}, {}", elided.count, print_size(elided.bytes)));
  }
  if (const auto refused = counted(TraceEvent::OutOfMemory); refused > 0) {
    line("out of memory", fmt::format("{} times", refused));
  }
  if (const auto& own = work.own_time(); own.count > 0) {
    line("time in cuvmm", fmt::format("{} us in {} calls", own.took_ns / 1000, own.count));
  }
  if (memory.live_at_end() > 0) line("never freed", print_size(memory.live_at_end()));
  if (const std::string note = trace->note(); !note.empty()) line("note", note);
  line("next", fmt::format("cuvmm plot {} -o run.png", in_shell(path)));
}

}  // namespace

void print_run_summary(const std::vector<std::string>& traces) {
  for (std::size_t i = 0; i < traces.size() && i < most_traces; ++i) print_one(traces[i]);
  if (traces.size() > most_traces) {
    line("and", fmt::format("{} traces of other processes", traces.size() - most_traces));
  }
}

}  // namespace cuvmm::cli
