// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace cuvmm {

// That the program has given the driver work. Who has to wait for all of it may skip the wait where
// no note was left since one that covered everything began.
//
// Each note that is taken gets a number. A wait that begins after take() answered n covers all the
// work of notes up to n; so who finds n the same as when his last wait began has nothing to wait
// for.
class SubmissionEpoch {
 public:
  // After the driver has taken the work. Called for every launch and copy of every thread: reads
  // only, while the note lies there.
  void leave() {
    if (!is_left()) word_.fetch_or(left, std::memory_order_acq_rel);
  }
  bool is_left() const { return (word_.load(std::memory_order_acquire) & left) != 0; }

  // Takes the note, where there is one. The number of the last that was taken.
  std::uint64_t take() {
    std::uint64_t word = word_.load(std::memory_order_acquire);
    while ((word & left) != 0) {
      const std::uint64_t taken = (word & ~left) + one;
      if (word_.compare_exchange_weak(word, taken, std::memory_order_acq_rel)) return taken;
    }
    return word;
  }

 private:
  static constexpr std::uint64_t left = 1;
  static constexpr std::uint64_t one = 2;
  std::atomic<std::uint64_t> word_{0};  // number and note in one, so that they change together
};

}  // namespace cuvmm
