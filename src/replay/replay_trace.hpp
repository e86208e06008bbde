// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/size.hpp"
#include "stream/free_ticket.hpp"

namespace cuvmm::replay {

// The largest size that a recording may contain: sums of two cannot overflow.
inline constexpr Size most_recorded_bytes = Size{1} << 62;

// The number of an allocation, in the order of the trace.
using BlockId = std::uint32_t;

enum class Action : std::uint8_t { Allocate, Free };
enum class Kind : std::uint8_t { StreamOrdered, Blocking };

// A request to the program's allocator. A free means that the memory may be reused.
struct ReplayEvent {
  std::uint64_t time_us = 0;
  Size size = 0;  // requested bytes, also of a free
  BlockId block = 0;
  StreamId stream = 1;  // of a free: the stream that the block was allocated on
  Action action = Action::Allocate;
  Kind kind = Kind::StreamOrdered;

  bool operator==(const ReplayEvent&) const = default;
};

// The kind of recording that a trace was read from.
enum class Source : std::uint8_t { Cuvmm, PytorchTable, PytorchSnapshot, RmmLog };
const char* name_of(Source source);  // "PyTorch memory snapshot"

// A request that was refused for lack of memory.
struct RefusedAllocation {
  std::size_t before = 0;  // index of the next event
  std::uint64_t time_us = 0;
  Size size = 0;
  StreamId stream = 1;
  Kind kind = Kind::StreamOrdered;
  std::int64_t reserved = 0;      // held by PyTorch at that time; 0: unknown
  Size live = 0;                  // held by the program at that time
  std::optional<Size> available;  // free on the card besides, if it is known
  Size own_chunks = 0;            // held by the program with cuMemCreate, besides `live`
  std::optional<Size> limit;      // on the memory of the program at that time
};

// A program's requests in time order, from any source.
struct ReplayTrace {
  std::vector<ReplayEvent> events;
  std::uint32_t allocations = 0;
  std::uint32_t streams = 0;
  std::uint64_t duration_us = 0;
  Size live_peak_bytes = 0;
  Size largest_bytes = 0;            // the largest request
  std::uint64_t frees_left_out = 0;  // of memory allocated before the trace began

  Source source = Source::Cuvmm;
  std::vector<std::uint64_t> addresses;  // in the original program, by BlockId
  std::vector<RefusedAllocation> refusals;
  bool is_expandable = false;    // PyTorch ran with expandable_segments:True
  Size reserved_peak_bytes = 0;  // the most that PyTorch held; 0: unknown
  std::string note;              // what the file lacks; empty: nothing
  std::optional<Size> memory;    // of the program's device
};

// Builds a trace from events that have addresses.
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
  // Nothing may be live at that address. Requests for no bytes are left out.
  void allocate(const Request& request);
  // Frees of memory that is not live are counted and left out.
  void free(std::uint64_t time_us, std::uint64_t address);
  void refuse(const Request& request, std::optional<Size> available, Size own_chunks = 0,
              std::optional<Size> limit = {});
  // PyTorch took memory from the card, or gave it back.
  void reserve(std::int64_t more);
  void is_expandable() { trace_.is_expandable = true; }
  void memory(Size bytes) { trace_.memory = bytes; }
  // Sets the memory that PyTorch held when the trace ended. finish() derives the initial memory.
  void reserved_at_end(Size bytes) { reserved_at_end_ = bytes; }

  ReplayTrace finish(Source source = Source::Cuvmm);

 private:
  StreamId number_of(std::uint64_t stream);
  void add(const ReplayEvent& event);

  std::int64_t reserved_ = 0;  // since the trace began, like the next two
  std::int64_t reserved_least_ = 0;
  std::int64_t reserved_most_ = 0;
  std::optional<Size> reserved_at_end_;
  ReplayTrace trace_;
  Size live_bytes_ = 0;
  std::unordered_map<std::uint64_t, ReplayEvent> live_;  // by address
  std::unordered_map<std::uint64_t, StreamId> streams_;  // by its original id
};

}  // namespace cuvmm::replay
