// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "share/control.hpp"
#include "share/group_pause.hpp"
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

  // Like Pauser: TimedOut if calls and work do not end in time, or if the pause is cancelled.
  // Calls `has_released` while it releases memory. After any other Error the program may still be
  // paused.
  virtual Result<void> pause(Duration within, const share::Fellows& fellows,
                             const std::function<void()>& has_released) = 0;
  enum class Come : std::uint8_t { Whole, Partly };  // Partly: the rest stays on the host
  virtual Result<void> resume(Come how) = 0;
  // While paused: brings back as much as the leases have room for, ahead of the resume.
  virtual void return_ahead() = 0;
  // Moves that memory off the devices again.
  virtual void leave_again() = 0;
  virtual bool is_paused() const = 0;
  // Whether a command, or the program itself, has paused it. Only they resume it then.
  virtual bool is_paused_by_command() const = 0;
  // Whether calls wait for the end of the pause, in cuvmm or in the driver.
  virtual bool has_held_calls() const = 0;
  // Also true halfway. Such a program makes no driver call and cannot resume.
  virtual bool is_off_devices() const = 0;
  // Answers the process that takes this one off its devices or brings it back. The request is
  // State, LeaveDevices, HasLeft or HasReturned of share::ControlWhat.
  virtual share::ControlAnswer agree(const share::ControlRequest& request) = 0;

  // Runs `wait` while this thread's call does not count as in progress.
  virtual void wait_outside(const std::function<void()>& wait) = 0;

 protected:
  ~Tenant() = default;
};

}  // namespace cuvmm::lease
