// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "vmm/leased_budget.hpp"

namespace cuvmm::lease {

// The program whose memory is leased: what it can give back, and how. But for wait_outside() it is
// asked by one thread at a time, which holds no lock.
class Tenant {
 public:
  // Memory that is free, and kept for the program's next allocation.
  virtual Size cached(const LeasedBudget& budget) = 0;
  // Gives so much of it back to the driver, if there is as much.
  virtual void free_cache(LeasedBudget& budget, Size wanted) = 0;

  // Memory that could lie on the host while the program runs, and would not be missed.
  virtual Size cold(const LeasedBudget& budget) = 0;
  // Moves so much of it there, if there is as much; for calls and work it waits so long.
  virtual void move_out_cold(LeasedBudget& budget, Size wanted, Duration within) = 0;

  // No call since it was last asked, and no work under way.
  virtual bool is_idle() = 0;

  // As Pauser has it: TimedOut where calls and work are not done in time.
  virtual Result<void> pause(Duration within) = 0;
  enum class Come : std::uint8_t { Whole, Partly };  // Partly: what finds no room, to the host
  virtual Result<void> resume(Come how) = 0;
  virtual bool is_paused() const = 0;
  // Calls wait for the end of the pause.
  virtual bool has_held_calls() const = 0;

  // Runs it while this thread's call does not count as under way.
  virtual void wait_outside(const std::function<void()>& wait) = 0;

 protected:
  ~Tenant() = default;
};

}  // namespace cuvmm::lease
