// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/size.hpp"
#include "trace/record.hpp"

namespace cuvmm::cli {

// What a trace says of memory. Records are added in the order of time.
class TraceSummary {
 public:
  void add(const TraceRecord& record);

  std::uint64_t events = 0;
  std::uint64_t allocations = 0;         // granted
  std::uint64_t failed_allocations = 0;  // refused, to the program
  std::uint64_t frees = 0;
  std::uint64_t failed_frees = 0;
  std::uint64_t last_time_ns = 0;
  Size live_bytes = 0;  // device memory that the program holds
  Size live_peak_bytes = 0;
  Size physical_bytes = 0;  // of the devices: chunks, and what the driver gave by itself
  Size physical_peak_bytes = 0;
  Size live_at_end() const { return live_bytes; }

 private:
  void grow(Size live, Size physical);
  void shrink(Size live, Size physical);

  struct Live {
    Size requested = 0;
    Size physical = 0;  // 0 where its chunks are counted by themselves
  };
  std::unordered_map<std::uint64_t, Live> live_;    // by address
  std::unordered_map<std::uint64_t, Size> chunks_;  // by handle
};

}  // namespace cuvmm::cli
