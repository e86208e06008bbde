// SPDX-License-Identifier: Apache-2.0
#include "cli/top/table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include <nlohmann/json.hpp>

#include "base/size.hpp"

namespace cuvmm::cli {
namespace {

constexpr std::size_t history_width = 16;
constexpr std::size_t least_command = 12;
constexpr const char* unknown = "-";

// The utilisation over time, in eighths; a blank if unknown.
std::string history_of(const SeenProcess& process, Letters letters) {
  static constexpr const char* bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* marks[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const auto& history = process.history();
  const std::size_t shown = std::min(history.size(), history_width);
  std::string line(history_width - shown, ' ');
  for (std::size_t i = history.size() - shown; i < history.size(); ++i) {
    if (!history[i]) {
      line += ' ';
      continue;
    }
    const auto eighth = static_cast<std::size_t>(std::clamp(*history[i], 0.0, 1.0) * 7.999);
    line += letters == Letters::Unicode ? bars[eighth] : marks[eighth];
  }
  return line;
}

std::string of_memory(const SeenProcess& process,
                      const std::function<std::string(const MemoryNow&)>& cell) {
  const auto memory = process.memory();
  return memory ? cell(*memory) : unknown;
}

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.0f}%", *share * 100) : unknown;
}

std::string command_of(const SeenProcess& process) {
  if (process.answers()) {
    const share::Figures& figures = process.figures();
    if (figures.is_paused == 0) return process.command();
    const char* const state = figures.is_off_devices != 0 ? "paused, off the card" : "paused";
    return fmt::format("({}) {}", state, process.command());
  }
  if (process.figures().time_us == 0) return "(does not answer) " + process.command();
  const double seconds = static_cast<double>(process.silent_for_us()) / 1e6;
  return fmt::format("(silent {:.0f} s) {}", seconds, process.command());
}

struct Column {
  const char* title;
  std::size_t width;
  int importance;  // on a narrow terminal, the least important goes first
  std::string (*cell)(const SeenProcess& process);
  // If set, the column appears only if this holds for a process.
  bool (*is_needed)(const SeenProcess& process) = nullptr;
};
std::string size_cell(const SeenProcess& process, Size MemoryNow::*member) {
  return of_memory(process, [&](const MemoryNow& memory) { return print_size(memory.*member); });
}
constexpr Column columns[] = {
    {"PROCESS", 7, 9, [](const SeenProcess& one) { return std::to_string(one.number()); }},
    {"USER", 8, 6, [](const SeenProcess& one) { return one.user().substr(0, 8); },
     [](const SeenProcess& one) { return !one.is_of_this_user(); }},
    {"CONTAINER", 12, 6,
     [](const SeenProcess& one) {
       return one.container() ? one.container()->id.substr(0, 12) : std::string{unknown};
     },
     [](const SeenProcess& one) { return one.container().has_value(); }},
    {"GPU", 5, 3, [](const SeenProcess& one) { return one.devices(); }},
    {"LIVE", 9, 7, [](const SeenProcess& one) { return size_cell(one, &MemoryNow::live); }},
    {"CACHED", 9, 4, [](const SeenProcess& one) { return size_cell(one, &MemoryNow::cached); }},
    {"PHYSICAL", 9, 8, [](const SeenProcess& one) { return size_cell(one, &MemoryNow::physical); }},
    {"LIMIT", 9, 5,
     [](const SeenProcess& one) {
       return of_memory(one, [](const MemoryNow& memory) {
         return memory.limit ? print_size(*memory.limit) : unknown;
       });
     }},
    {"SPILLED", 9, 1, [](const SeenProcess& one) { return size_cell(one, &MemoryNow::spilled); }},
    {"MOVES", 8, 2,
     [](const SeenProcess& one) {
       return of_memory(one, [](const MemoryNow& memory) { return std::to_string(memory.moves); });
     }},
    {"USED", 5, 6,
     [](const SeenProcess& one) {
       return of_memory(one, [](const MemoryNow& memory) { return percent(memory.utilisation()); });
     }},
};
constexpr int importance_of_history = 3;

struct Chosen {
  std::vector<const Column*> columns;
  bool history = false;
  std::size_t width = 0;
};

// Chooses the columns that fit beside a command of the shortest useful width.
Chosen choose(const std::vector<SeenProcess>& processes, const TableForm& form) {
  for (int least = 0;; ++least) {
    Chosen chosen;
    for (const Column& column : columns) {
      if (column.importance < least) continue;
      if (column.is_needed != nullptr &&
          std::none_of(processes.begin(), processes.end(), column.is_needed)) {
        continue;
      }
      chosen.columns.push_back(&column);
      chosen.width += column.width + 1;
    }
    chosen.history = form.history == WithHistory::Yes && least <= importance_of_history;
    if (chosen.history) chosen.width += history_width + 1;
    const bool fits = chosen.width + least_command <= form.width;
    if (fits || chosen.columns.size() <= 1) return chosen;
  }
}

MemoryNow memory_or_none(const SeenProcess& process) {
  return process.memory().value_or(MemoryNow{});
}

double rank(TopOrder order, const SeenProcess& process) {
  const MemoryNow memory = memory_or_none(process);
  switch (order) {
    case TopOrder::Physical:
      return -static_cast<double>(memory.physical);
    case TopOrder::Live:
      return -static_cast<double>(memory.live);
    case TopOrder::Cached:
      return -static_cast<double>(memory.cached);
    case TopOrder::Used:
      return -memory.utilisation().value_or(-1);
    case TopOrder::Moves:
      return -static_cast<double>(memory.moves);
    case TopOrder::Process:
      return process.number();
    case TopOrder::Command:
    case TopOrder::Container:
      return 0;
  }
  return 0;
}

// Sorts containers of one pod together, and processes outside any last.
std::string name_of(const std::optional<node::Container>& container) {
  return container ? container->pod + "/" + container->id : "~";
}

nlohmann::json size_or_null(Size limit) {
  return limit == unlimited ? nlohmann::json(nullptr) : nlohmann::json(limit);
}

nlohmann::json as_json(const share::DeviceFigures& device) {
  return {{"device", device.ordinal},
          {"device_bytes", device.memory},
          {"live_bytes", device.requested_live},
          {"cached_bytes", device.cached},
          {"physical_bytes", device.physical},
          {"limit_bytes", size_or_null(device.limit)},
          {"spilled_bytes", device.spilled},
          {"moves", device.moves},
          {"moved_bytes", device.moved}};
}

nlohmann::json as_json(const std::optional<node::Container>& container) {
  if (!container) return nullptr;
  const auto pod =
      container->pod.empty() ? nlohmann::json(nullptr) : nlohmann::json(container->pod);
  return {{"id", container->id}, {"pod", pod}};
}

nlohmann::json as_json(const SeenProcess& process) {
  nlohmann::json object = {{"process", process.number()},
                           {"user", process.user()},
                           {"container", as_json(process.container())},
                           {"command", process.command()},
                           {"mode", printable(process.who().mode.data())},
                           {"version", printable(process.who().library_version.data())},
                           {"paused", process.figures().is_paused != 0},
                           {"off_devices", process.figures().is_off_devices != 0},
                           {"answers", process.answers()},
                           {"silent_us", process.silent_for_us()}};
  const auto memory = process.memory();
  const auto put = [&](const char* key, const auto& value) {
    object[key] = memory ? nlohmann::json(value) : nlohmann::json(nullptr);
  };
  const MemoryNow now = memory_or_none(process);
  put("live_bytes", now.live);
  put("cached_bytes", now.cached);
  put("physical_bytes", now.physical);
  put("spilled_bytes", now.spilled);
  put("moves", now.moves);
  put("moved_bytes", now.moved);
  object["limit_bytes"] = now.limit ? nlohmann::json(*now.limit) : nlohmann::json(nullptr);
  const auto used = now.utilisation();
  object["utilisation"] = used ? nlohmann::json(*used) : nlohmann::json(nullptr);
  object["devices"] = nlohmann::json::array();
  for (std::uint32_t i = 0; i < process.figures().device_count; ++i) {
    object["devices"].push_back(as_json(process.figures().devices[i]));
  }
  return object;
}

}  // namespace

void sort_by(TopOrder order, Reversed reversed, std::vector<SeenProcess>& processes) {
  const auto comes_first = [order](const SeenProcess& a, const SeenProcess& b) {
    const double rank_a = rank(order, a);
    const double rank_b = rank(order, b);
    if (rank_a != rank_b) return rank_a < rank_b;
    if (order == TopOrder::Command && a.command() != b.command()) return a.command() < b.command();
    if (order == TopOrder::Container) {
      if (name_of(a.container()) != name_of(b.container())) {
        return name_of(a.container()) < name_of(b.container());
      }
      const double physical_a = rank(TopOrder::Physical, a);
      const double physical_b = rank(TopOrder::Physical, b);
      if (physical_a != physical_b) return physical_a < physical_b;
    }
    return a.number() < b.number();
  };
  std::sort(processes.begin(), processes.end(), comes_first);
  if (reversed == Reversed::Yes) std::reverse(processes.begin(), processes.end());
}

std::vector<std::string> table_of(const std::vector<SeenProcess>& processes,
                                  const TableForm& form) {
  const Chosen chosen = choose(processes, form);
  std::string heading;
  for (const Column* column : chosen.columns) {
    heading += fmt::format("{:>{}} ", column->title, column->width);
  }
  if (chosen.history) heading += fmt::format("{:<{}} ", "USED SO FAR", history_width);
  std::vector<std::string> lines{first_letters(heading + "COMMAND", form.width)};
  for (const SeenProcess& process : processes) {
    std::string line;
    for (const Column* column : chosen.columns) {
      line += fmt::format("{:>{}} ", column->cell(process), column->width);
    }
    if (chosen.history) line += history_of(process, form.letters) + " ";
    lines.push_back(first_letters(line + command_of(process), form.width));
  }
  return lines;
}

std::string total_of(const std::vector<SeenProcess>& processes, const TopFilter& filter) {
  if (processes.empty()) {
    return filter.shows_all() ? "no process runs under cuvmm" : "no process matches";
  }
  MemoryNow sum;
  for (const SeenProcess& process : processes) {
    const MemoryNow memory = memory_or_none(process);
    sum.physical += memory.physical;
    sum.cached += memory.cached;
  }
  const std::string used =
      sum.physical == 0 ? "" : fmt::format(", {} of it used", percent(sum.utilisation()));
  return fmt::format("{} {} {}{}", processes.size(),
                     processes.size() == 1 ? "process holds" : "processes hold",
                     print_size(sum.physical), used);
}

nlohmann::json as_json(const Processes& processes) {
  nlohmann::json all = {{"schema", 1}, {"processes", nlohmann::json::array()}};
  for (const SeenProcess& process : processes.all()) all["processes"].push_back(as_json(process));
  all["problems"] = processes.problems();
  return all;
}

}  // namespace cuvmm::cli
