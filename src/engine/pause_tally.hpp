// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "share/figures.hpp"
#include "spill/pause.hpp"

namespace cuvmm {

// How often a process was paused (or resumed), and how long that took. One writer at a time; any
// thread may read.
class PauseTally {
 public:
  void note(const PauseReport& report) {
    if (report.moved == 0 && report.stayed == 0) return;
    counts_[share::PauseFigures::bucket_of(report.took_us)].fetch_add(1);
    sum_us_.fetch_add(report.took_us);
    bytes_.fetch_add(report.moved);
  }
  share::PauseFigures figures() const {
    share::PauseFigures now;
    for (std::size_t i = 0; i < counts_.size(); ++i) now.counts[i] = counts_[i].load();
    now.sum_us = sum_us_.load();
    now.bytes = bytes_.load();
    return now;
  }

 private:
  std::array<std::atomic<std::uint64_t>, share::PauseFigures::bucket_count> counts_{};
  std::atomic<std::uint64_t> sum_us_{0};
  std::atomic<Size> bytes_{0};
};

}  // namespace cuvmm
