// SPDX-License-Identifier: Apache-2.0
// Reads a trace, whatever state it is in: its records in the order of time, all threads together.
//
//   TraceReader trace = TRY(TraceReader::open(path));
//   TRY(trace.for_each([&](const TraceRecord& record) { ... }));
//   if (const std::string note = trace.note(); !note.empty()) ...
//
// The order is exact, however late a thread handed its records over; records of one moment come in
// the order of the file. Memory is bounded: about a MiB, and as much again for each MiB of the file
// whose times overlap with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "trace/header.hpp"
#include "trace/record.hpp"
#include "trace/scan.hpp"

namespace cuvmm {

class TraceReader {
 public:
  static Result<TraceReader> open(const std::string& path);
  static Result<TraceReader> open(Fd file);

  const TraceHeader& header() const { return header_; }

  // Known before the first record is read; fewer come where blocks are damaged.
  std::uint64_t record_count() const { return scan_.records; }
  std::uint64_t last_time() const { return scan_.last_time; }

  // The next record, valid until the next call. nullptr at the end; status() says whether it is the
  // true one.
  const TraceRecord* next() {
    if (now_.at != now_.end && now_.at->time < others_begin_) return now_.at++;
    return next_of_all();
  }
  const Result<void>& status() const { return status_; }

  template <class Visit>
  Result<void> for_each(Visit&& visit) {
    while (const TraceRecord* record = next()) visit(*record);
    return status_;
  }

  // Back to the first record.
  void rewind();

  // What is wrong with it; complete after the last record.
  TraceHealth health() const;
  // The same in one line for a person; empty when all is well.
  std::string note() const;

 private:
  // Records of one block that are still to come.
  struct Run {
    const TraceRecord* at = nullptr;
    const TraceRecord* end = nullptr;
    Size place = 0;          // of the block in the file
    std::size_t loaded = 0;  // in loaded_
  };
  // A stretch in memory, until its runs have been read.
  struct Loaded {
    std::unique_ptr<std::byte[]> bytes;
    Size size = 0;
    std::size_t runs = 0;
  };
  struct Later;

  TraceReader(TraceBytes file, TraceHeader header, TraceScan scan);
  const TraceRecord* next_of_all();
  void exchange_with_earliest(Run& run);
  bool take_next_run();
  bool load_stretches_up_to(std::uint64_t time);
  bool load(const TraceStretch& stretch);
  void add_runs(std::span<const std::byte> bytes, Size place, std::size_t loaded);
  void add_run(Run run);
  void done_with(std::size_t place);
  std::uint64_t next_stretch_time() const;

  TraceBytes file_;
  TraceHeader header_;
  TraceScan scan_;  // stretches in the order of their first times
  std::size_t next_stretch_ = 0;
  std::vector<Loaded> loaded_;
  std::vector<std::size_t> free_places_;  // in loaded_
  Size loaded_bytes_ = 0;
  std::vector<Run> runs_;  // a heap, the earliest on top
  Run now_;
  std::uint64_t others_begin_ = 0;  // now_ goes alone before this time
  std::uint64_t damaged_ = 0;       // found since the walk over the headers
  Result<void> status_;
};

}  // namespace cuvmm
