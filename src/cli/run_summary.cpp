// SPDX-License-Identifier: Apache-2.0
#include "cli/run_summary.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

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

struct Child {
  std::string path;
  std::uint64_t process = 0;
  std::string program;
  Size peak_bytes = 0;
  std::uint64_t refusals = 0;
};

Child read_child(const std::string& path) {
  Child child{.path = path};
  auto trace = view::Recording::open(path);
  if (!trace) return child;
  TraceSummary memory;
  while (const TraceRecord* record = trace->next()) memory.add(*record);
  const auto& command = trace->header().command;
  if (!command.empty()) child.program = printable(command.front());
  child.process = trace->header().process;
  child.peak_bytes = memory.live_peak_bytes;
  child.refusals = memory.failed_allocations;
  return child;
}

std::string refused(std::uint64_t count) {
  return count == 0 ? "" : fmt::format(", {} allocation{} refused", count, count == 1 ? "" : "s");
}

// Those that were refused memory come first, since not all are listed.
void print_children(std::vector<Child>& children) {
  std::stable_partition(children.begin(), children.end(),
                        [](const Child& child) { return child.refusals > 0; });
  const std::size_t listed = std::min(children.size(), most_children);
  for (std::size_t i = 0; i < listed; ++i) {
    const Child& child = children[i];
    line("child",
         child.process == 0
             ? child.path + ": not readable"
             : fmt::format("{}: {} (process {}), peak requested {}{}", child.path, child.program,
                           child.process, print_size(child.peak_bytes), refused(child.refusals)));
  }
  if (children.size() == listed) return;
  std::uint64_t refusals = 0;
  for (std::size_t i = listed; i < children.size(); ++i) refusals += children[i].refusals;
  line("and",
       fmt::format("{} more traces of children{}", children.size() - listed, refused(refusals)));
}

enum class Outcome : std::uint8_t { Unreadable, Served, Refused };

Outcome print_one(const std::string& path) {
  auto trace = view::Recording::open(path);
  if (!trace) return Outcome::Unreadable;
  TraceSummary memory;
  WorkSummary work;
  view::StackUses stacks;
  const bool has_stacks = !trace->header().facts.stacks.empty();
  while (const TraceRecord* record = trace->next()) {
    memory.add(*record);
    work.add(*record);
    if (has_stacks) stacks.add(*record);
  }
  if (!trace->status() || memory.events == 0) return Outcome::Unreadable;
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
  if (memory.is_native()) {
    line("peak physical", "unknown, the driver served the program");
  } else {
    line("peak physical",
         fmt::format("{}{}, {}", print_size(memory.physical_peak_bytes), spilled,
                     used ? fmt::format("{:.1f}% of it used", 100 * *used)
                          : "pools or the program itself manage it, its use is unknown"));
  }
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
    line("out of memory", fmt::format("{} time{}", refused, refused == 1 ? "" : "s"));
  }
  if (const auto& own = work.own_time(); own.count > 0) {
    line("time in cuvmm",
         fmt::format("{:.3f} s in {} calls", static_cast<double>(own.took_ns) / 1e9, own.count));
  }
  if (memory.live_at_end() > 0) {
    line("never freed", print_size(memory.live_at_end()));
    print_leaking_stacks(trace->header(), stacks);
  }
  if (const std::string note = trace->note(); !note.empty()) line("note", note);
  return memory.failed_allocations > 0 ? Outcome::Refused : Outcome::Served;
}

// Advises on the first process that was refused memory.
void print_next(const std::string& first, Outcome outcome, const std::vector<Child>& children) {
  if (outcome == Outcome::Refused) {
    line("next", fmt::format("cuvmm advise {}", in_shell(first)));
  } else if (!children.empty() && children.front().refusals > 0) {
    line("next", fmt::format("cuvmm advise {}", in_shell(children.front().path)));
  } else {
    const std::string picture = std::filesystem::path{first}.stem().string() + ".png";
    line("next", fmt::format("cuvmm plot {} -o {}", in_shell(first), in_shell(picture)));
  }
}

}  // namespace

const char* note_on_times(const TraceHeader& header) {
  for (const TraceDevice& device : header.facts.devices) {
    if (device.name == "cuvmm simulated device") return " (simulated)";
  }
  return "";
}

void print_run_summary(const std::vector<std::string>& traces) {
  auto first = traces.begin();
  auto outcome = Outcome::Unreadable;
  for (; first != traces.end(); ++first) {
    outcome = print_one(*first);
    if (outcome != Outcome::Unreadable) break;
  }
  if (first == traces.end()) return;
  std::vector<Child> children;
  std::transform(first + 1, traces.end(), std::back_inserter(children), read_child);
  print_children(children);
  print_next(*first, outcome, children);
}

}  // namespace cuvmm::cli
