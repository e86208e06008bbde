// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "stream/free_ticket.hpp"

namespace cuvmm {

// The number of calls that each stream was given since its last completed mark. The driver blocks a
// thread that gives a stream more than its launch queue holds (1,020 on an H100), and a blocked
// issuing thread delays every client. Not thread-safe.
class LaunchQueues {
 public:
  void submitted(StreamId stream, std::uint64_t calls = 1) {
    if (streams_.size() >= many_streams) forget_short_ones();
    streams_[stream].submitted += calls;
  }
  // All calls given to the stream so far; for completed_to(), once the device has passed them.
  std::uint64_t position_of(StreamId stream) const {
    const auto found = streams_.find(stream);
    return found == streams_.end() ? 0 : found->second.submitted;
  }
  void completed_to(StreamId stream, std::uint64_t position) {
    const auto found = streams_.find(stream);
    if (found == streams_.end() || position > found->second.submitted) return;
    found->second.completed = std::max(found->second.completed, position);
  }
  bool is_nearly_full(StreamId stream) const {
    const auto found = streams_.find(stream);
    return found != streams_.end() && found->second.length() >= nearly_full;
  }

 private:
  static constexpr std::uint64_t nearly_full = 900;
  static constexpr std::uint64_t is_short = 32;
  static constexpr std::size_t many_streams = 4096;

  struct Queue {
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;
    std::uint64_t length() const { return submitted - completed; }
  };
  // Streams end unseen. Counting a live one anew loses few of its calls; marks from before then
  // are ignored.
  void forget_short_ones() {
    std::erase_if(streams_, [](const auto& known) { return known.second.length() < is_short; });
  }

  std::unordered_map<StreamId, Queue> streams_;
};

}  // namespace cuvmm
