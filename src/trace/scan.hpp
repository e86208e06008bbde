// SPDX-License-Identifier: Apache-2.0
// The first walk over a trace: headers of blocks only, to find what there is and where time begins
// in each part of the file.
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

// Reads stretches of a plain file. Reading, not mapping: a file that is cut short meanwhile must
// not end the reader by a signal.
class TraceBytes {
 public:
  static Result<TraceBytes> of(Fd file);
  Size size() const { return size_; }

  // Fills as much of `bytes` as there is from `place` on; what was filled.
  Result<std::span<const std::byte>> read(Size place, std::span<std::byte> bytes) const;

 private:
  TraceBytes(Fd file, Size size) : file_(std::move(file)), size_(size) {}
  Fd file_;
  Size size_;
};

// What is wrong with a trace that could still be read.
struct TraceHealth {
  bool is_finished = false;  // its writer wrote the end
  bool reached_size_cap = false;
  bool ran_out_of_space = false;
  std::uint64_t dropped = 0;    // events that were lost while it was taken
  std::uint64_t cut_bytes = 0;  // after the last whole record
  std::uint64_t damaged = 0;    // blocks, or stretches between blocks, that were left out

  bool operator==(const TraceHealth&) const = default;
};

// Blocks that follow each other without a gap, about a MiB of them.
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

// Adds to `header` the facts that came later.
Result<TraceScan> scan_trace(const TraceBytes& file, Size from, TraceHeader& header);

}  // namespace cuvmm
