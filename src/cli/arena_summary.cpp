// SPDX-License-Identifier: Apache-2.0
#include "cli/arena_summary.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/printable.hpp"

namespace cuvmm::cli {
namespace {

std::string name_of_arena(const TraceHeader& header, std::uint64_t number) {
  for (const TraceName& name : header.facts.names) {
    if (name.subject == TraceSubject::Arena && name.number == number) return name.text;
  }
  return fmt::format("arena {}", number);
}

}  // namespace

void ArenaSummary::add(const TraceRecord& record) {
  if (record.event != TraceEvent::ArenaCounters) return;
  arenas_[record.detail] = {.device = record.device,
                            .used = record.address,
                            .free = record.size,
                            .moved = record.stream,
                            .compacted = record.other};
}

void ArenaSummary::add_to(const TraceHeader& header, nlohmann::json& object) const {
  if (arenas_.empty()) return;
  auto all = nlohmann::json::array();
  for (const auto& [number, figures] : arenas_) {
    all.push_back({{"arena", number},
                   {"name", name_of_arena(header, number)},
                   {"device", figures.device},
                   {"used_bytes", figures.used},
                   {"free_bytes", figures.free},
                   {"moved_bytes", figures.moved},
                   {"compacted_bytes", figures.compacted}});
  }
  object["arenas"] = std::move(all);
}

void ArenaSummary::print(const TraceHeader& header) const {
  if (arenas_.empty()) return;
  fmt::print("\n{:<40} {:>12} {:>12} {:>12} {:>12}\n", "arenas, at the end", "used", "free",
             "moved", "compacted");
  for (const auto& [number, figures] : arenas_) {
    fmt::print("{:<40} {:>12} {:>12} {:>12} {:>12}\n", printable(name_of_arena(header, number)),
               print_size(figures.used), print_size(figures.free), print_size(figures.moved),
               print_size(figures.compacted));
  }
}

}  // namespace cuvmm::cli
