// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/size.hpp"
#include "stream/free_ticket.hpp"

namespace cuvmm::replay {

// An allocation of the trace, by the order in which they came.
using BlockId = std::uint32_t;

enum class Action : std::uint8_t { Allocate, Free };
enum class Kind : std::uint8_t { StreamOrdered, Blocking };

// What a program asked of its allocator. A free says that the memory may be used again.
struct ReplayEvent {
  std::uint64_t time_us = 0;
  Size size = 0;  // asked for; of a free too
  BlockId block = 0;
  StreamId stream = 1;  // of a free: the one that the block was allocated on
  Action action = Action::Allocate;
  Kind kind = Kind::StreamOrdered;

  bool operator==(const ReplayEvent&) const = default;
};

// A program's requests in the order of time, whatever they were read from.
struct ReplayTrace {
  std::vector<ReplayEvent> events;
  std::uint32_t allocations = 0;
  std::uint32_t streams = 0;
  std::uint64_t duration_us = 0;
  Size live_peak_bytes = 0;
  Size largest_bytes = 0;            // asked for at once
  std::uint64_t frees_left_out = 0;  // of memory that was allocated before the trace began
};

// Makes a trace of events that tell of addresses.
class TraceBuilder {
 public:
  struct Request {
    std::uint64_t time_us = 0;
    std::uint64_t address = 0;
    Size size = 0;
    std::uint64_t stream = 0;
    Kind kind = Kind::StreamOrdered;
  };

  bool is_live(std::uint64_t address) const { return live_.contains(address); }
  // Nothing may be live at that address. Requests for nothing are left out.
  void allocate(const Request& request);
  // Memory that is not live is counted and left out.
  void free(std::uint64_t time_us, std::uint64_t address);

  ReplayTrace finish() { return std::move(trace_); }

 private:
  StreamId number_of(std::uint64_t stream);
  void add(const ReplayEvent& event);

  ReplayTrace trace_;
  Size live_bytes_ = 0;
  std::unordered_map<std::uint64_t, ReplayEvent> live_;  // by address
  std::unordered_map<std::uint64_t, StreamId> streams_;  // by the name that the trace gives it
};

}  // namespace cuvmm::replay
