// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/size.hpp"
#include "trace/record.hpp"
#include "view/memory_walk.hpp"

namespace cuvmm::cli {

// A trace's memory totals. Add records in the order of time.
class TraceSummary final : private view::MemorySink {
 public:
  TraceSummary() : walk_(*this) {}
  TraceSummary(const TraceSummary&) = delete;
  TraceSummary& operator=(const TraceSummary&) = delete;

  void add(const TraceRecord& record);

  std::uint64_t events = 0;
  std::uint64_t allocations = 0;         // granted
  std::uint64_t failed_allocations = 0;  // refused to the program
  std::uint64_t frees = 0;
  std::uint64_t failed_frees = 0;
  std::uint64_t last_time_ns = 0;
  Size live_peak_bytes = 0;      // the program's device memory
  Size physical_peak_bytes = 0;  // of the devices: chunks and the driver's own allocations
  Size spilled_peak_bytes = 0;   // mapped at its addresses but not resident on their device
  // Whether the driver served all allocations. It does not say how much memory it took for them, so
  // physical_peak_bytes counts what was requested of it.
  bool is_native() const {
    return allocations_here_ == native_allocations_ && allocations_here_ > 0;
  }
  Size live_at_end() const { return walk_.sums().requested; }

  // The peak of the program's bytes as a share of the peak of the memory that held them: physical
  // and spilled. Nothing if it is not known: the driver serves the program, or the program manages
  // all of its memory itself.
  std::optional<double> utilisation() const {
    if (backed_peak_bytes_ == 0) return 0;
    if (live_peak_bytes == 0 || is_native()) return {};
    return static_cast<double>(live_peak_bytes) / static_cast<double>(backed_peak_bytes_);
  }

 private:
  void counted(const view::MemorySums& sums, std::uint64_t time) override;

  view::MemoryWalk walk_;
  std::uint64_t allocations_here_ = 0;  // of device memory
  std::uint64_t native_allocations_ = 0;
  Size backed_peak_bytes_ = 0;  // physical and spilled
};

}  // namespace cuvmm::cli
