// SPDX-License-Identifier: Apache-2.0
// The first pass over a trace: reads only block headers, to find what the file holds and where time
// begins in each part of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "trace/format.hpp"
#include "trace/header.hpp"

namespace cuvmm {

// Reads parts of a plain file. Does not map it: truncating the file meanwhile must not kill the
// reader with SIGBUS.
class TraceBytes {
 public:
  static Result<TraceBytes> of(Fd file);
  Size size() const { return size_; }

  // Fills `bytes` from `place` on, as far as the file reaches; returns the part filled.
  Result<std::span<const std::byte>> read(Size place, std::span<std::byte> bytes) const;

 private:
  TraceBytes(Fd file, Size size) : file_(std::move(file)), size_(size) {}
  Fd file_;
  Size size_;
};

// The defects of a readable trace.
struct TraceHealth {
  bool is_finished = false;  // its writer wrote the End block
  bool reached_size_cap = false;
  bool ran_out_of_space = false;
  std::uint64_t dropped = 0;    // events lost during recording
  std::uint64_t cut_bytes = 0;  // bytes after the last whole record
  std::uint64_t damaged = 0;    // blocks, or ranges between blocks, that were left out

  bool operator==(const TraceHealth&) const = default;
};

// Consecutive blocks without a gap, about a MiB of them.
struct TraceStretch {
  Size begin = 0;
  Size end = 0;
  std::uint64_t first_time = ~std::uint64_t{0};  // of the earliest record
};

struct TraceScan {
  std::vector<TraceStretch> stretches;  // in the order of the file
  std::uint64_t records = 0;
  std::uint64_t last_time = 0;
  TraceHealth health;
};

// Scans the file from offset `from` on. Adds later facts to `header`.
Result<TraceScan> scan_trace(const TraceBytes& file, Size from, TraceHeader& header);

}  // namespace cuvmm
