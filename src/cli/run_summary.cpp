// SPDX-License-Identifier: Apache-2.0
#include "cli/run_summary.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "base/size.hpp"
#include "cli/output.hpp"
#include "cli/stack_summary.hpp"
#include "cli/trace_summary.hpp"
#include "cli/work_summary.hpp"
#include "view/recording.hpp"

namespace cuvmm::cli {
namespace {

constexpr std::size_t most_children = 8;  // whose traces are listed

void line(const char* what, const std::string& value) {
  say_more(fmt::format("  {:<22} {}", what, value));
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

// One line of another process' trace.
void print_child(const std::string& path) {
  auto trace = view::Recording::open(path);
  if (!trace) return line("child", path);
  TraceSummary memory;
  while (const TraceRecord* record = trace->next()) memory.add(*record);
  const auto& command = trace->header().command;
  line("child", fmt::format("{}: {} (process {}), peak requested {}", path,
                            command.empty() ? "" : printable(command.front()),
                            trace->header().process, print_size(memory.live_peak_bytes)));
}

void print_one(const std::string& path) {
  auto trace = view::Recording::open(path);
  if (!trace) return;
  TraceSummary memory;
  WorkSummary work;
  view::StackUses stacks;
  const bool has_stacks = !trace->header().facts.stacks.empty();
  while (const TraceRecord* record = trace->next()) {
    memory.add(*record);
    work.add(*record);
    if (has_stacks) stacks.add(*record);
  }
  if (!trace->status() || memory.events == 0) return;
  say(in_tone(
      fmt::format("{} events in {:.3f} s{}", memory.events,
                  static_cast<double>(memory.last_time_ns) / 1e9, note_on_times(trace->header())),
      Tone::Strong, STDERR_FILENO));
  line("peak requested", print_size(memory.live_peak_bytes));
  const std::string spilled =
      memory.spilled_peak_bytes == 0
          ? ""
          : fmt::format(" and {} spilled", print_size(memory.spilled_peak_bytes));
  const auto used = memory.utilisation();
  line("peak physical", fmt::format("{}{}, {}", print_size(memory.physical_peak_bytes), spilled,
                                    used ? fmt::format("{:.1f}% of it used", 100 * *used)
                                         : "the program manages it itself, its use is not known"));
  line("allocations", fmt::format("{}, {} refused", memory.allocations, memory.failed_allocations));
  const auto counted = [&](TraceEvent event) { return work.of(event).count; };
  if (const auto moves = counted(TraceEvent::Move) + counted(TraceEvent::Compact); moves > 0) {
    line("moved", fmt::format("{} times, {}", moves,
                              print_size(work.of(TraceEvent::Move).bytes +
                                         work.of(TraceEvent::Compact).bytes)));
  }
  if (const auto& elided = work.of(TraceEvent::CopyElided); elided.count > 0) {
    line("copies avoided", fmt::format("{}, {}", elided.count, print_size(elided.bytes)));
  }
  if (const auto refused = counted(TraceEvent::OutOfMemory); refused > 0) {
    line("out of memory", fmt::format("{} times", refused));
  }
  if (const auto& own = work.own_time(); own.count > 0) {
    line("time in cuvmm", fmt::format("{} us in {} calls", own.took_ns / 1000, own.count));
  }
  if (memory.live_at_end() > 0) {
    line("never freed", print_size(memory.live_at_end()));
    print_leaking_stacks(trace->header(), stacks);
  }
  if (const std::string note = trace->note(); !note.empty()) line("note", note);
  line("next", memory.failed_allocations > 0
                   ? fmt::format("cuvmm advise {}", in_shell(path))
                   : fmt::format("cuvmm plot {} -o run.png", in_shell(path)));
}

}  // namespace

const char* note_on_times(const TraceHeader& header) {
  for (const TraceDevice& device : header.facts.devices) {
    if (device.name == "cuvmm simulated device") return " (simulated)";
  }
  return "";
}

void print_run_summary(const std::vector<std::string>& traces) {
  if (traces.empty()) return;
  print_one(traces.front());
  const std::size_t listed = std::min(traces.size(), most_children + 1);
  for (std::size_t i = 1; i < listed; ++i) print_child(traces[i]);
  if (traces.size() > listed) {
    line("and", fmt::format("{} more traces of children", traces.size() - listed));
  }
}

}  // namespace cuvmm::cli
