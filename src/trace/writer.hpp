// SPDX-License-Identifier: Apache-2.0
// Takes the events of all threads to a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/size.hpp"
#include "trace/header.hpp"
#include "trace/record_event.hpp"

namespace cuvmm {

struct TraceSetup {
  std::string file;  // may hold %p and %h; what exists is kept (see create_trace_file)
  TraceHeader header = TraceHeader::of_this_process();
  std::uint32_t ring_records = 8192;  // of each thread; rounded up to a power of two
  Size size_cap = 4 * GiB;
  Duration interval{20'000};  // the longest time that an event stays out of the file
};

struct TraceTotals {
  std::uint64_t records = 0;  // in the file
  std::uint64_t dropped = 0;  // lost: a ring was full, or the file could take no more
  Size bytes = 0;             // of the file
};

// One at a time in a process. From start() to finish() events are recorded, and a thread of its
// own writes them.
class TraceWriter {
 public:
  // Creates the file, writes its header, starts the thread, turns recording on.
  static Result<std::unique_ptr<TraceWriter>> start(TraceSetup setup);

  // Finishes. Who must not wait at the program's end calls finish() and leaks the writer.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Adds what has become known of the process.
  void add(TraceFacts facts);

  // Brings to the file all that was recorded before the call. False where that took too long, or in
  // a forked child.
  bool flush(Duration at_most = std::chrono::seconds{1});

  // Turns recording off, flushes, writes the end of the file. May be called while the process
  // exits: nothing is joined, and it takes no longer than `at_most`. Events that other threads
  // record at that very moment may be lost.
  bool finish(Duration at_most = std::chrono::seconds{1});

  TraceTotals totals() const;
  const std::string& path() const;
  bool name_was_taken() const;  // and so path() has the process' number at its end

  // In a forked child: the parent's file and rings are forgotten and recording is off. The child
  // may start a writer of its own; the parent's, which it inherited, does nothing more.
  static void forget_after_fork();

 private:
  class Work;
  explicit TraceWriter(std::shared_ptr<Work> work) : work_(std::move(work)) {}
  std::shared_ptr<Work> work_;  // with the thread, which may outlive us where a disk hangs
};

}  // namespace cuvmm
