// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace cuvmm::observe {

// A histogram of durations with Prometheus' buckets.
class TimeHistogram {
 public:
  // Upper bounds, ascending. One more bucket counts longer durations.
  explicit TimeHistogram(std::span<const std::uint64_t> bounds_us)
      : bounds_us_(bounds_us), counts_(bounds_us.size() + 1) {}

  void note(std::uint64_t us) {
    std::size_t bucket = 0;
    while (bucket < bounds_us_.size() && us > bounds_us_[bucket]) ++bucket;
    add(bucket, 1, us);
  }
  void add(std::size_t bucket, std::uint64_t count, std::uint64_t sum_us) {
    counts_[bucket] += count;
    sum_us_ += sum_us;
  }

  std::span<const std::uint64_t> bounds_us() const { return bounds_us_; }
  const std::vector<std::uint64_t>& counts() const { return counts_; }
  std::uint64_t sum_us() const { return sum_us_; }
  std::uint64_t count() const {
    std::uint64_t all = 0;
    for (const std::uint64_t one : counts_) all += one;
    return all;
  }

 private:
  std::span<const std::uint64_t> bounds_us_;
  std::vector<std::uint64_t> counts_;
  std::uint64_t sum_us_ = 0;
};

// From a millisecond to five minutes. A request may wait for ten minutes at most.
inline constexpr std::array<std::uint64_t, 10> lease_wait_bounds_us{
    1'000,     10'000,     100'000,    300'000,    1'000'000,
    3'000'000, 10'000'000, 30'000'000, 60'000'000, 300'000'000};

}  // namespace cuvmm::observe
