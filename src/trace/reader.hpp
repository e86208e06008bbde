// SPDX-License-Identifier: Apache-2.0
// Reads a trace, even a damaged one: all threads' records, merged in time order.
//
//   TraceReader trace = TRY(TraceReader::open(path));
//   TRY(trace.for_each([&](const TraceRecord& record) { ... }));
//   if (const std::string note = trace.note(); !note.empty()) ...
//
// The order is exact, however late a thread's records were written; records of one moment keep the
// order of the file. Memory is bounded: about a MiB, and as much again for each MiB of the file
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

  // Known before the first record is read; fewer records follow if blocks are damaged.
  std::uint64_t record_count() const { return scan_.records; }
  std::uint64_t last_time() const { return scan_.last_time; }

  // The next record, valid until the next call. nullptr at the end; status() then tells a real end
  // from an error.
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

  // Goes back to the first record.
  void rewind();

  // Problems found so far; complete after the last record.
  TraceHealth health() const;
  // The same as one line of text; empty if there are none.
  std::string note() const;

 private:
  // The remaining records of one block.
  struct Run {
    const TraceRecord* at = nullptr;
    const TraceRecord* end = nullptr;
    Size place = 0;          // of the block in the file
    std::size_t loaded = 0;  // in loaded_
  };
  // A stretch of the file in memory, until its runs have been read.
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
  TraceScan scan_;  // stretches sorted by first time
  std::size_t next_stretch_ = 0;
  std::vector<Loaded> loaded_;
  std::vector<std::size_t> free_places_;  // in loaded_
  Size loaded_bytes_ = 0;
  std::vector<Run> runs_;  // a heap, the earliest on top
  Run now_;
  std::uint64_t others_begin_ = 0;  // before this time only now_ has records
  std::uint64_t damaged_ = 0;       // found after the scan of the headers
  Result<void> status_;
};

}  // namespace cuvmm
