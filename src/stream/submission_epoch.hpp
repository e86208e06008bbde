// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace cuvmm {

// Tracks whether the program has given the driver work. Submitting work leaves a note, which take()
// takes. A caller that must wait for all work may skip the wait if no note was left since an
// earlier complete wait began.
//
// Each note that is taken gets a number. A wait that begins after take() returned n covers all work
// of notes up to n. So if take() returns the same n as before the caller's last wait, nothing new
// needs to be waited for.
class SubmissionEpoch {
 public:
  // After the driver has accepted the work. Called for every launch and copy of every thread; only
  // reads while a note is already left.
  [[gnu::always_inline]] void leave() {
    if (!is_left()) word_.fetch_or(left, std::memory_order_acq_rel);
  }
  bool is_left() const { return (word_.load(std::memory_order_acquire) & left) != 0; }

  // Takes the note if there is one. Returns the number of the last note taken.
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
  std::atomic<std::uint64_t> word_{0};  // number and note in one word, so that they change together
};

}  // namespace cuvmm
