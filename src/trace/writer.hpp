// SPDX-License-Identifier: Apache-2.0
// Writes the events of all threads to a file.
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
  std::string file;  // may contain %p and %h; existing files are kept (see create_trace_file)
  TraceHeader header = TraceHeader::of_this_process();
  std::uint32_t ring_records = 8192;  // per thread; rounded up to a power of two
  Size size_cap = 4 * GiB;
  Duration interval{20'000};  // the longest time before an event is in the file
};

struct TraceTotals {
  std::uint64_t records = 0;  // in the file
  std::uint64_t dropped = 0;  // lost because a ring was full or the file could take no more
  Size bytes = 0;             // of the file
};

// At most one per process. Between start() and finish() events are recorded, and an internal thread
// writes them.
class TraceWriter {
 public:
  // Creates the file, writes its header, starts the thread and turns recording on.
  static Result<std::unique_ptr<TraceWriter>> start(TraceSetup setup);

  // Calls finish(). A caller that must not wait at the program's end calls finish() itself and
  // leaks the writer.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Adds facts that have become known about the process.
  void add(TraceFacts facts);

  // Writes everything recorded before the call to the file. False if that took too long, or in a
  // forked child.
  bool flush(Duration at_most = std::chrono::seconds{1});

  // Turns recording off, flushes, and writes the end of the file. May be called during process
  // exit: it joins no thread and takes at most `at_most`. Events that other threads are recording
  // at that moment may be lost.
  bool finish(Duration at_most = std::chrono::seconds{1});

  TraceTotals totals() const;
  const std::string& path() const;
  bool name_was_taken() const;  // if true, path() ends with the pid

  // In a forked child: forgets the parent's file and rings and turns recording off. The child may
  // start a writer of its own; the inherited one does nothing more.
  static void forget_after_fork();

 private:
  class Work;
  explicit TraceWriter(std::shared_ptr<Work> work) : work_(std::move(work)) {}
  std::shared_ptr<Work> work_;  // shared with the thread, which may outlive this if a disk hangs
};

}  // namespace cuvmm
