// SPDX-License-Identifier: Apache-2.0
// A program's part in a pause of several programs (base/group_step.hpp).
#pragma once

#include <functional>
#include <optional>

#include "base/clock.hpp"
#include "base/group_step.hpp"
#include "base/result.hpp"

namespace cuvmm::share {

// Coordinate a program's pause with those of others. By default there are none.
struct Fellows {
  // Polled until calls and work in flight have ended. False calls off the pause.
  std::function<bool()> still_working = [] { return true; };
  // Called once they have ended. False calls off the pause.
  std::function<bool()> may_move = [] { return true; };
};

// Whoever coordinates the pause, as one of the programs sees it.
class PauseCoordinator {
 public:
  virtual ~PauseCoordinator() = default;
  // This program holds its calls. Says whether its work has ended.
  virtual void report(bool has_ended_work) = 0;
  // The last step received and not forgotten.
  virtual std::optional<GroupStep> step() = 0;
  // Forgets the step that step() has returned.
  virtual void forget_step() = 0;
  // Waits a moment for the next step.
  virtual void wait() = 0;
  // Whether it still waits for this program's pause.
  virtual bool is_waiting() = 0;
};

// Pauses as the coordinator says. `attempt` pauses the program within a time, and answers TimedOut
// if calls and work do not end in time, or if the fellows call the pause off; it may be called
// several times.
using PauseAttempt = std::function<Result<void>(Duration within, const Fellows& fellows)>;
Result<void> pause_with_group(PauseCoordinator& coordinator, Duration within,
                              const PauseAttempt& attempt);

}  // namespace cuvmm::share
