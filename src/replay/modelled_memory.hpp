// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "replay/measured_card.hpp"

namespace cuvmm::replay {

// A model's view of the card: physical memory up to a limit, unlimited addresses, and the time that
// its calls would have taken.
class ModelledMemory {
 public:
  explicit ModelledMemory(Size limit) : limit_(limit) {}

  // False, without taking anything, if not enough is available.
  bool take(Size size) {
    if (size > available()) return false;
    used_ += size;
    peak_ = std::max(peak_, used_);
    return true;
  }
  void give_back(Size size) { used_ -= size; }

  // Never returns the same addresses twice, nor adjacent ranges.
  std::uint64_t new_addresses(Size size, Size alignment) {
    const std::uint64_t begin = round_up(next_address_, alignment);
    next_address_ = begin + size + usual_granule;
    return begin;
  }

  void charge(CardCall call, Size size, std::uint64_t times = 1) {
    modelled_us_ += static_cast<double>(times) * microseconds_of(call, size);
  }

  Size available() const { return limit_ - std::min(limit_, used_); }
  Size used() const { return used_; }
  Size peak() const { return peak_; }
  double modelled_us() const { return modelled_us_; }

 private:
  Size limit_;
  Size used_ = 0;
  Size peak_ = 0;
  std::uint64_t next_address_ = usual_granule;
  double modelled_us_ = 0;
};

}  // namespace cuvmm::replay
