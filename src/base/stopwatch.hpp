// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"

namespace cuvmm {

// Adds the time for which it lives to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(std::uint64_t& sum_us) : sum_us_(sum_us), began_(now_ns()) {}
  ~Stopwatch() { sum_us_ += (now_ns() - began_) / 1000; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::uint64_t& sum_us_;
  const std::uint64_t began_;
};

}  // namespace cuvmm
