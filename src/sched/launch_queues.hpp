// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "stream/free_ticket.hpp"

namespace cuvmm {

// The number of calls that each stream was given since its last completed mark. The driver blocks a
// thread that gives a stream more than its launch queue holds (1,020 on an H100), and a blocked
// issuing thread delays every client. Not thread-safe.
class LaunchQueues {
 public:
  // Returns the position of the last of these calls: how many the stream was given in all.
  std::uint64_t submitted(StreamId stream, std::uint64_t calls = 1) {
    Queue* known = find(stream);
    if (known == nullptr) {
      if (queues_.size() >= many_streams) forget_short_ones();
      known = &queues_.emplace_back(Queue{.stream = stream});
    }
    return known->submitted += calls;
  }
  // A mark is behind the calls up to this position; completed_to() follows once it is reached.
  void marked(StreamId stream, std::uint64_t position) {
    Queue* known = find(stream);
    if (known == nullptr || position > known->submitted) return;
    known->marked = std::max(known->marked, position);
  }
  void completed_to(StreamId stream, std::uint64_t position) {
    Queue* known = find(stream);
    if (known == nullptr || position > known->submitted) return;
    known->completed = std::max(known->completed, position);
    known->marked = std::max(known->marked, position);
  }
  // Whether so many calls have no mark behind them that the count says too little about the queue.
  // A mark made only once the queue seems full might be behind work that waits for the program.
  bool needs_mark(StreamId stream) {
    const Queue* known = find(stream);
    return known != nullptr && known->unmarked() >= most_unmarked && known->length() < nearly_full;
  }
  // Whether marks of single calls would take too much of the queue.
  bool is_long(StreamId stream) {
    const Queue* known = find(stream);
    return known != nullptr && known->length() >= most_unmarked;
  }
  bool is_nearly_full(StreamId stream) {
    const Queue* known = find(stream);
    return known != nullptr && known->length() >= nearly_full;
  }

 private:
  static constexpr std::uint64_t nearly_full = 900;
  static constexpr std::uint64_t most_unmarked = 128;
  static constexpr std::uint64_t is_short = 32;
  static constexpr std::size_t many_streams = 64;

  struct Queue {
    StreamId stream = no_stream;
    std::uint64_t submitted = 0;
    std::uint64_t marked = 0;
    std::uint64_t completed = 0;
    std::uint64_t length() const { return submitted - completed; }
    std::uint64_t unmarked() const { return submitted - marked; }
  };
  // Streams end unseen. Counting a live one anew loses few of its calls; marks from before then
  // are ignored.
  void forget_short_ones() {
    std::erase_if(queues_, [](const Queue& known) { return known.length() < is_short; });
  }
  Queue* find(StreamId stream) {
    for (Queue& known : queues_) {
      if (known.stream == stream) return &known;
    }
    return nullptr;
  }

  std::vector<Queue> queues_;
};

}  // namespace cuvmm
