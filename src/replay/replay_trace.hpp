// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
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

// What a trace was read from.
enum class Source : std::uint8_t { Cuvmm, PytorchTable, PytorchSnapshot, RmmLog };
const char* name_of(Source source);  // "PyTorch memory snapshot"

// A request that the program was refused, for want of memory.
struct RefusedAllocation {
  std::size_t before = 0;  // the event that came next
  std::uint64_t time_us = 0;
  Size size = 0;
  StreamId stream = 1;
  Kind kind = Kind::StreamOrdered;
  Size reserved = 0;   // that PyTorch held then; 0: it is not said
  Size live = 0;       // that the program held then
  Size available = 0;  // that the card had besides; 0: it is not said
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

  Source source = Source::Cuvmm;
  std::vector<std::uint64_t> addresses;  // as the trace has them, of each BlockId
  std::vector<RefusedAllocation> refusals;
  bool is_expandable = false;    // PyTorch took its memory with expandable_segments:True
  Size reserved_peak_bytes = 0;  // the most that PyTorch held of the card; 0: it is not said
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
  void refuse(const Request& request, Size available);
  // PyTorch takes memory from the card, or gives it back.
  void reserve(std::int64_t more);
  void is_expandable() { trace_.is_expandable = true; }
  // So much it held when the trace ended: what it held at first follows.
  void reserved_at_end(Size bytes) { reserved_at_end_ = bytes; }

  ReplayTrace finish(Source source = Source::Cuvmm);

 private:
  StreamId number_of(std::uint64_t stream);
  void add(const ReplayEvent& event);

  std::int64_t reserved_ = 0;  // since the trace began, as are the next two
  std::int64_t reserved_least_ = 0;
  std::int64_t reserved_most_ = 0;
  std::optional<Size> reserved_at_end_;
  ReplayTrace trace_;
  Size live_bytes_ = 0;
  std::unordered_map<std::uint64_t, ReplayEvent> live_;  // by address
  std::unordered_map<std::uint64_t, StreamId> streams_;  // by the name that the trace gives it
};

}  // namespace cuvmm::replay
