// SPDX-License-Identifier: Apache-2.0
#include "view/lanes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

namespace cuvmm::view {
namespace {

constexpr std::size_t most_counted = 4096;  // streams; a hostile trace may name any number
constexpr std::size_t most_shown = 12;

bool is_operation(TraceEvent event) {
  switch (event) {
    case TraceEvent::Launch:
    case TraceEvent::Copy:
    case TraceEvent::Set:
    case TraceEvent::GraphLaunch:
    case TraceEvent::Prefetch:
      return true;
    default:
      return false;
  }
}

std::string name_in(const TraceHeader& header, TraceSubject subject, std::uint64_t number) {
  for (const TraceName& name : header.facts.names) {
    if (name.subject == subject && name.number == number) return name.text;
  }
  if (subject == TraceSubject::Client) return fmt::format("client {}", number);
  if (number == 1) return "legacy stream";
  if (number == 2) return "per-thread streams";
  return fmt::format("stream {:#x}", number);
}

}  // namespace

void Lanes::count(Counts& counts, std::uint64_t whose, std::size_t column) {
  auto lane = counts.find(whose);
  if (lane == counts.end()) {
    if (counts.size() == most_counted) return;
    lane = counts.emplace(whose, std::vector<std::uint32_t>(columns_)).first;
  }
  ++lane->second[column];
}

bool Lanes::has_place_for(const TraceRecord& record) {
  // A refused call started nothing, and a captured one only added to a graph.
  if (record.result != 0 || (record.flags & trace_flag::captured) != 0) return false;
  if (record.client != 0) return record.event == TraceEvent::Issued;
  return is_operation(record.event) && record.stream != 0;
}

void Lanes::add(const TraceRecord& record, std::size_t column) {
  if (!has_place_for(record)) return;
  if (record.client != 0) {
    count(by_client_, record.client, column);
  } else {
    count(by_stream_, record.stream, column);
  }
}

std::vector<PictureLane> Lanes::take(const TraceHeader& header, bool& are_clients) const {
  are_clients = !by_client_.empty();
  const TraceSubject subject = are_clients ? TraceSubject::Client : TraceSubject::Stream;
  std::vector<std::pair<std::uint64_t, PictureLane>> lanes;
  for (const auto& [whose, operations] : are_clients ? by_client_ : by_stream_) {
    const auto all = std::accumulate(operations.begin(), operations.end(), std::uint64_t{0});
    lanes.push_back({all, {name_in(header, subject, whose), operations}});
  }
  std::stable_sort(lanes.begin(), lanes.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  lanes.resize(std::min(lanes.size(), most_shown));
  std::vector<PictureLane> busiest;
  busiest.reserve(lanes.size());
  for (auto& [count, lane] : lanes) busiest.push_back(std::move(lane));
  return busiest;
}

}  // namespace cuvmm::view
