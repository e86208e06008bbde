// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "trace/record.hpp"

namespace cuvmm::cli {

// A trace's totals for the program's work: counts, bytes and times by kind of event.
class WorkSummary {
 public:
  void add(const TraceRecord& record);

  // Adds keys to a flat object; always the same ones.
  void add_to(nlohmann::json& object) const;
  // Prints only what occurred.
  void print() const;

  struct Tally {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t took_ns = 0;
    std::uint64_t longest_ns = 0;
  };
  const Tally& of(TraceEvent event) const { return tallies_[static_cast<std::size_t>(event)]; }

  // Calls that cuvmm answered itself; empty if the trace's end is missing.
  const Tally& own_time() const { return own_time_; }

 private:
  static constexpr std::size_t most_events = 128;  // number of event kinds, rounded up
  static constexpr std::size_t most_reasons = 16;

  std::array<Tally, most_events> tallies_{};
  std::array<std::uint64_t, most_reasons> run_{};
  Tally own_time_;
  std::uint64_t calls_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t captured_ = 0;
};

}  // namespace cuvmm::cli
