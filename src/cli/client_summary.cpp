// SPDX-License-Identifier: Apache-2.0
#include "cli/client_summary.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/printable.hpp"
#include "base/size.hpp"

namespace cuvmm::cli {
namespace {

std::string name_of_client(const TraceHeader& header, std::uint64_t number) {
  for (const TraceName& name : header.facts.names) {
    if (name.subject == TraceSubject::Client && name.number == number) return name.text;
  }
  return fmt::format("client {}", number);
}

std::uint64_t in_us(std::uint64_t ns) {
  return ns / 1000;
}

}  // namespace

void ClientSummary::add(const TraceRecord& record) {
  if (record.client == 0) return;
  Figures& figures = clients_[record.client];
  switch (record.event) {
    case TraceEvent::ClientCreate:
      figures.priority = static_cast<std::int64_t>(record.other);
      figures.weight = record.size;
      break;
    case TraceEvent::Issued:
      ++figures.operations;
      figures.bytes += record.size;
      figures.queued_ns += record.other;
      figures.longest_queued_ns = std::max(figures.longest_queued_ns, record.other);
      break;
    case TraceEvent::Completed:
      figures.device_ns += record.other;
      break;
    default:
      break;
  }
}

void ClientSummary::add_to(const TraceHeader& header, nlohmann::json& object) const {
  if (is_empty()) return;
  auto all = nlohmann::json::array();
  for (const auto& [number, figures] : clients_) {
    all.push_back({{"client", number},
                   {"name", name_of_client(header, number)},
                   {"priority", figures.priority},
                   {"weight", figures.weight},
                   {"operations", figures.operations},
                   {"bytes", figures.bytes},
                   {"queued_us", in_us(figures.queued_ns)},
                   {"longest_queued_us", in_us(figures.longest_queued_ns)},
                   {"device_us", in_us(figures.device_ns)}});
  }
  object["clients"] = std::move(all);
}

void ClientSummary::print(const TraceHeader& header) const {
  if (is_empty()) return;
  fmt::print("\n{:<20} {:>8} {:>7} {:>11} {:>12} {:>15} {:>15} {:>14}\n", "clients", "priority",
             "weight", "operations", "bytes", "mean queued us", "longest us", "on device ms");
  for (const auto& [number, figures] : clients_) {
    const std::uint64_t mean = figures.queued_ns / std::max<std::uint64_t>(1, figures.operations);
    fmt::print("{:<20} {:>8} {:>7} {:>11} {:>12} {:>15.1f} {:>15.1f} {:>14.3f}\n",
               printable(name_of_client(header, number)), figures.priority, figures.weight,
               figures.operations, print_size(figures.bytes), static_cast<double>(mean) / 1e3,
               static_cast<double>(figures.longest_queued_ns) / 1e3,
               static_cast<double>(figures.device_ns) / 1e6);
  }
}

}  // namespace cuvmm::cli
