// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace cuvmm::view {

// Counts values by power of two.
class Histogram {
 public:
  static constexpr std::size_t buckets = 65;

  void add(std::uint64_t value) { ++counts_[static_cast<std::size_t>(std::bit_width(value))]; }
  // Bucket 0 holds zeros, bucket n the values from 2^(n-1) up to 2^n - 1.
  const std::array<std::uint64_t, buckets>& counts() const { return counts_; }

 private:
  std::array<std::uint64_t, buckets> counts_{};
};

}  // namespace cuvmm::view
