// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace cuvmm {

// That the program has given the driver work. Who waits for all of it may skip the wait where no
// note was left since the last one.
//
// The note says nothing of a wait that is under way: whoever takes it holds others back, with a
// lock of its own, until that wait is over. If the wait fails, it leaves the note again.
class WorkNote {
 public:
  // After the driver has taken the work, so that a note which is gone means work that was waited
  // for. Called for every launch and copy of every thread: reads only, while the note lies there.
  void leave() {
    if (!left_.load(std::memory_order_relaxed)) left_.store(true, std::memory_order_release);
  }

  bool take() { return left_.exchange(false, std::memory_order_acq_rel); }

 private:
  std::atomic<bool> left_{false};
};

}  // namespace cuvmm
