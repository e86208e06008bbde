// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "share/control.hpp"
#include "vmm/leased_budget.hpp"

namespace cuvmm::lease {

// The program whose memory is leased: what it can give back, and how. One thread at a time calls
// these functions, without holding a lock; wait_outside() may be called by any thread.
class Tenant {
 public:
  // Bytes of free memory kept for the program's next allocation.
  virtual Size cached(const LeasedBudget& budget) = 0;
  // Gives up to `wanted` bytes of it back to the driver.
  virtual void free_cache(LeasedBudget& budget, Size wanted) = 0;

  // Bytes of cold memory, which could be on the host while the program runs.
  virtual Size cold(const LeasedBudget& budget) = 0;
  // Moves up to `wanted` bytes of it to the host. Waits up to `within` for calls and work to end.
  virtual void move_out_cold(LeasedBudget& budget, Size wanted, Duration within) = 0;

  // True if there was no call since the last query and no work is in flight.
  virtual bool is_idle() = 0;

  // What the pause of a group's member depends on; by default it is a pause of its own.
  struct Fellows {
    // Polled while calls and work in flight have not ended. False: let the calls run.
    std::function<bool()> still_working = [] { return true; };
    // Called once they have ended. False: the same.
    std::function<bool()> may_move = [] { return true; };
  };
  // Like Pauser: TimedOut if calls and work do not end in time, or if the pause is called off.
  // Calls `has_released` while it releases memory. After another Error the program may be paused
  // all the same.
  virtual Result<void> pause(Duration within, const Fellows& fellows,
                             const std::function<void()>& has_released) = 0;
  enum class Come : std::uint8_t { Whole, Partly };  // Partly: what finds no room stays on the host
  virtual Result<void> resume(Come how) = 0;
  // While paused: brings back as much as its leases have room for, ahead of the resume; and takes
  // that off the devices again.
  virtual void return_ahead() = 0;
  virtual void leave_again() = 0;
  virtual bool is_paused() const = 0;
  // Whether calls wait for the end of the pause, in cuvmm or in the driver.
  virtual bool has_held_calls() const = 0;
  // Then, or halfway there, it makes no driver call and cannot resume.
  virtual bool is_off_devices() const = 0;
  // On behalf of whoever takes it off its devices or brings it back: State, LeaveDevices, HasLeft
  // and HasReturned of share::ControlWhat.
  virtual share::ControlAnswer agree(const share::ControlRequest& request) = 0;

  // Runs `wait` while this thread's call does not count as in progress.
  virtual void wait_outside(const std::function<void()>& wait) = 0;

 protected:
  ~Tenant() = default;
};

}  // namespace cuvmm::lease
