// SPDX-License-Identifier: Apache-2.0
#include "cli/arena_summary.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

#include "base/printable.hpp"

namespace cuvmm::cli {
namespace {

// A program that makes a pool for each request has very many.
constexpr std::size_t most_rows = 20;

class ArenaNames {
 public:
  explicit ArenaNames(const TraceHeader& header) {
    for (const TraceName& name : header.facts.names) {
      if (name.subject == TraceSubject::Arena) names_.try_emplace(name.number, name.text);
    }
  }
  std::string of(std::uint64_t number) const {
    const auto found = names_.find(number);
    return found != names_.end() ? found->second : fmt::format("arena {}", number);
  }

 private:
  std::unordered_map<std::uint64_t, std::string> names_;
};

}  // namespace

ArenaSummary::Figures& ArenaSummary::Figures::operator+=(const Figures& other) {
  used += other.used;
  free += other.free;
  moved += other.moved;
  compacted += other.compacted;
  return *this;
}

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
  const ArenaNames names{header};
  auto all = nlohmann::json::array();
  for (const auto& [number, figures] : arenas_) {
    all.push_back({{"arena", number},
                   {"name", names.of(number)},
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
  const auto print_row = [](const std::string& name, const Figures& figures) {
    fmt::print("{:<40} {:>12} {:>12} {:>12} {:>12}\n", name, print_size(figures.used),
               print_size(figures.free), print_size(figures.moved), print_size(figures.compacted));
  };
  fmt::print("\n{:<40} {:>12} {:>12} {:>12} {:>12}\n", "arenas, at the end", "used", "free",
             "moved", "compacted");
  std::vector<std::pair<std::uint32_t, Figures>> rows{arenas_.begin(), arenas_.end()};
  Figures others;
  if (rows.size() > most_rows) {
    std::stable_sort(rows.begin(), rows.end(), [](const auto& one, const auto& other) {
      return one.second.held() > other.second.held();
    });
    for (auto row = rows.begin() + most_rows; row != rows.end(); ++row) others += row->second;
    rows.resize(most_rows);
  }
  const ArenaNames names{header};
  for (const auto& [number, figures] : rows) print_row(printable(names.of(number)), figures);
  if (const std::size_t left = arenas_.size() - rows.size(); left != 0) {
    print_row(fmt::format("{} others", left), others);
  }
}

}  // namespace cuvmm::cli
