// SPDX-License-Identifier: Apache-2.0
// Writes records to a file, block by block. Used by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "trace/format.hpp"
#include "trace/header.hpp"
#include "trace/trace_file.hpp"

namespace cuvmm {

class TraceSink {
 public:
  // Creates the file (see create_trace_file) and writes the header. The file never grows beyond
  // `size_cap` bytes, provided that the header fits.
  static Result<TraceSink> create(std::string_view pattern, const TraceHeader& header,
                                  Size size_cap);

  // Adds up to records_in_a_block records of that thread, or of many_threads, in time order.
  // `dropped` is the number lost on the way here. Written once enough records have accumulated, or
  // by flush().
  void add(std::span<const TraceRecord> records, std::uint32_t thread, std::uint64_t dropped);
  void add(const TraceFacts& facts);
  void flush();

  // Writes the End block and closes the file.
  void finish(std::uint64_t dropped, std::uint64_t time, std::uint32_t threads);

  // For a forked child: writes nothing more and closes its copy of the file.
  void leave_to_others();

  const std::string& path() const { return file_.path; }
  bool name_was_taken() const { return file_.name_was_taken; }
  std::uint64_t records() const { return records_; }  // in the file
  std::uint64_t lost() const { return lost_; }        // records that the file had no room for
  Size size() const { return size_; }

 private:
  // A block in buffer_.
  struct Waiting {
    std::size_t end;
    std::uint32_t records;
  };

  TraceSink(TraceFile file, Size size_cap) : file_(std::move(file)), size_cap_(size_cap) {}

  bool takes_more() const { return stop_ == trace_format::Stop::Finished; }
  bool has_room(std::size_t payload) const;
  void append(trace_format::BlockHeader header, std::span<const std::byte> payload);
  void keep_whole_blocks(std::size_t written);
  void truncate_to_whole_blocks();
  void stop(trace_format::Stop why);

  TraceFile file_;
  Size size_cap_;
  Size size_ = 0;       // of the file
  std::string buffer_;  // what follows it
  std::vector<Waiting> waiting_;
  std::uint64_t records_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t blocks_ = 0;
  trace_format::Stop stop_ = trace_format::Stop::Finished;
};

}  // namespace cuvmm
