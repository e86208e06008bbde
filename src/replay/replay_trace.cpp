// SPDX-License-Identifier: Apache-2.0
#include "replay/replay_trace.hpp"

#include <algorithm>
#include <limits>

namespace cuvmm::replay {

const char* name_of(Source source) {
  switch (source) {
    case Source::Cuvmm:
      return "cuvmm trace";
    case Source::PytorchTable:
      return "PyTorch memory history, as a table";
    case Source::PytorchSnapshot:
      return "PyTorch memory snapshot";
    case Source::RmmLog:
      return "RMM log";
  }
  return "trace";
}

void TraceBuilder::allocate(const Request& request) {
  if (request.size == 0) return;
  const ReplayEvent event{.time_us = request.time_us,
                          .size = request.size,
                          .block = trace_.allocations++,
                          .stream = number_of(request.stream),
                          .action = Action::Allocate,
                          .kind = request.kind};
  trace_.addresses.push_back(request.address);
  live_[request.address] = event;
  live_bytes_ += request.size;
  trace_.live_peak_bytes = std::max(trace_.live_peak_bytes, live_bytes_);
  trace_.largest_bytes = std::max(trace_.largest_bytes, request.size);
  add(event);
}

void TraceBuilder::free(std::uint64_t time_us, std::uint64_t address) {
  const auto found = live_.find(address);
  if (found == live_.end()) {
    ++trace_.frees_left_out;
    return;
  }
  ReplayEvent event = found->second;
  live_.erase(found);
  live_bytes_ -= event.size;
  event.time_us = time_us;
  event.action = Action::Free;
  add(event);
}

void TraceBuilder::refuse(const Request& request, std::optional<Size> available, Size own_chunks,
                          std::optional<Size> limit) {
  trace_.duration_us = std::max(trace_.duration_us, request.time_us);
  trace_.refusals.push_back({.before = trace_.events.size(),
                             .time_us = request.time_us,
                             .size = request.size,
                             .stream = number_of(request.stream),
                             .kind = request.kind,
                             .reserved = reserved_,
                             .live = live_bytes_,
                             .available = available,
                             .own_chunks = own_chunks,
                             .limit = limit});
}

void TraceBuilder::reserve(std::int64_t more) {
  if (__builtin_add_overflow(reserved_, more, &reserved_)) {
    reserved_ = more > 0 ? std::numeric_limits<std::int64_t>::max()
                         : std::numeric_limits<std::int64_t>::min() + 1;
  }
  reserved_least_ = std::min(reserved_least_, reserved_);
  reserved_most_ = std::max(reserved_most_, reserved_);
}

// The memory held before the trace began is the memory held at its end minus the net change. If the
// end is unknown, it is at least the largest net amount given back.
ReplayTrace TraceBuilder::finish(Source source) {
  const std::int64_t at_first =
      reserved_at_end_
          ? std::max<std::int64_t>(static_cast<std::int64_t>(*reserved_at_end_) - reserved_, 0)
          : -reserved_least_;
  trace_.reserved_peak_bytes = static_cast<Size>(at_first + reserved_most_);
  for (RefusedAllocation& refusal : trace_.refusals) {
    refusal.reserved = std::max<std::int64_t>(refusal.reserved + at_first, 0);
  }
  trace_.source = source;
  return std::move(trace_);
}

StreamId TraceBuilder::number_of(std::uint64_t stream) {
  const auto [entry, is_new] = streams_.try_emplace(stream, no_stream);
  if (is_new) entry->second = ++trace_.streams;
  return entry->second;
}

void TraceBuilder::add(const ReplayEvent& event) {
  trace_.duration_us = std::max(trace_.duration_us, event.time_us);
  trace_.events.push_back(event);
}

}  // namespace cuvmm::replay
