// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trace/reader.hpp"

namespace cuvmm::view {

// A recording of a program by cuvmm: its trace, or its log, whose lines are the same events. If
// several processes wrote to a log, only the events of the one with the most are used.
class Recording {
 public:
  static Result<Recording> open(const std::string& path);
  // Wraps records from another source, which must be in time order.
  static Recording of(TraceHeader header, std::vector<TraceRecord> records);

  const TraceHeader& header() const { return trace_ ? trace_->header() : log_header_; }
  std::uint64_t record_count() const { return trace_ ? trace_->record_count() : log_.size(); }
  std::uint64_t last_time() const;

  // Sets a callback that receives the fraction read, from 0 to 1, from time to time; from 0 again
  // after rewind().
  void tell_progress(std::function<void(double)> progress) { progress_ = std::move(progress); }

  // Records in time order; nullptr at the end, where status() tells a real end from an error.
  const TraceRecord* next() {
    if (++read_ % records_a_report == 0 && progress_) report();
    if (trace_) return trace_->next();
    return at_ < log_.size() ? &log_[at_++] : nullptr;
  }
  Result<void> status() const { return trace_ ? trace_->status() : Result<void>{}; }
  void rewind();

  // Problems as one line of text; empty if there are none.
  std::string note() const;
  TraceHealth health() const {
    return trace_ ? trace_->health() : TraceHealth{.is_finished = true};
  }

 private:
  explicit Recording(TraceReader trace) : trace_(std::move(trace)) {}
  Recording() = default;
  void report() const;

  static constexpr std::uint64_t records_a_report = 65'536;

  std::optional<TraceReader> trace_;
  TraceHeader log_header_;
  std::vector<TraceRecord> log_;
  std::uint64_t log_lines_left_out_ = 0;
  std::size_t log_processes_left_out_ = 0;
  std::size_t at_ = 0;
  std::uint64_t read_ = 0;
  std::function<void(double)> progress_;
};

}  // namespace cuvmm::view
