// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "trace/record.hpp"

namespace cuvmm::cli {

// What a trace says of the program's work: how often it did what, how many bytes, how long.
class WorkSummary {
 public:
  void add(const TraceRecord& record);

  // Keys of a flat object, all of them always.
  void add_to(nlohmann::json& object) const;
  // Lines for a person: what did not occur is left out.
  void print() const;

  struct Tally {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t took_ns = 0;
  };
  const Tally& of(TraceEvent event) const { return tallies_[static_cast<std::size_t>(event)]; }

  // Calls that were answered by cuvmm; nothing where the trace's end is missing.
  const Tally& own_time() const { return own_time_; }

 private:
  static constexpr std::size_t most_events = 128;  // numbers of events, rounded up
  static constexpr std::size_t most_reasons = 16;

  std::array<Tally, most_events> tallies_{};
  std::array<std::uint64_t, most_reasons> run_{};
  Tally own_time_;
  std::uint64_t calls_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t captured_ = 0;
};

}  // namespace cuvmm::cli
