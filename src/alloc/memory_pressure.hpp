// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/reclaim_steps.hpp"
#include "base/clock.hpp"
#include "base/lock.hpp"

namespace cuvmm {

// An allocation that lacks memory: how long it may wait in total, wherever it waits, and the steps
// that were tried for it.
class MemoryPressure {
 public:
  explicit MemoryPressure(Duration wait) : wait_(wait) {}

  // When to stop waiting, in now_ns(). The first call starts the time.
  std::uint64_t until() { return until(wait_); }
  // The same for a step that may take longer than the others.
  std::uint64_t until(Duration wait) {
    if (began_ == 0) began_ = now_ns();
    return began_ + in_ns(wait);
  }
  // Extends the wait by time in which cuvmm itself kept all work from running.
  void discount(std::uint64_t ns) { began_ += ns; }

  ReclaimSteps tried;

 private:
  const Duration wait_;
  std::uint64_t began_ = 0;
};

// Threads that lack memory of one device reclaim it one at a time. Otherwise each would take the
// memory that another has just reclaimed.
class PressureTurns {
 public:
  class Turn {
   public:
    explicit Turn(PressureTurns& turns) : turns_(turns) {}
    ~Turn() { give_back(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Returns true at once if this thread has it, false if other threads have it until then.
    bool take(std::uint64_t until);
    void give_back();

   private:
    PressureTurns& turns_;
    bool is_mine_ = false;
  };

 private:
  Lock lock_{LockOrder::Pressure};  // guards what follows
  bool is_taken_ = false;
  Condition given_back_;
};

}  // namespace cuvmm
