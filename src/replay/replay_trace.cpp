// SPDX-License-Identifier: Apache-2.0
#include "replay/replay_trace.hpp"

#include <algorithm>

namespace cuvmm::replay {

void TraceBuilder::allocate(const Request& request) {
  if (request.size == 0) return;
  const ReplayEvent event{.time_us = request.time_us,
                          .size = request.size,
                          .block = trace_.allocations++,
                          .stream = number_of(request.stream),
                          .action = Action::Allocate,
                          .kind = request.kind};
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
