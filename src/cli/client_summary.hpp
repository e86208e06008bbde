// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>

#include "trace/header.hpp"
#include "trace/record.hpp"

namespace cuvmm::cli {

// Totals for each of the scheduler's clients.
class ClientSummary {
 public:
  void add(const TraceRecord& record);
  bool is_empty() const { return clients_.empty(); }

  // Adds "clients": [...] if there were any.
  void add_to(const TraceHeader& header, nlohmann::json& object) const;
  void print(const TraceHeader& header) const;

 private:
  struct Figures {
    std::int64_t priority = 0;
    std::uint64_t weight = 1;
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
    std::uint64_t queued_ns = 0;
    std::uint64_t longest_queued_ns = 0;
    std::uint64_t device_ns = 0;
  };
  std::map<std::uint16_t, Figures> clients_;
};

}  // namespace cuvmm::cli
