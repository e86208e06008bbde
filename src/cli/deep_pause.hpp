// SPDX-License-Identifier: Apache-2.0
// The second half of a deep pause, and the first half of the resume after one: what a paused
// process still has on its devices (contexts, modules) leaves, or returns.
#pragma once

#include <optional>
#include <string>

#include "cli/process_checkpoint.hpp"
#include "share/control.hpp"

namespace cuvmm::cli {

struct DeepPauseOutcome {
  CheckpointEnd end = CheckpointEnd::Unknown;  // then `cuvmm resume` tries again
  std::string why;                             // unless OffDevices
  CheckpointTimes times;
  Size left = 0;  // bytes, where NVML says so
};

// The process must be paused. Can be repeated after any outcome, and after the death of the process
// that called it.
DeepPauseOutcome take_off_devices(pid_t process, Duration timeout);

// Does nothing if the process is on its devices. If it fails, the process stays off its devices and
// the call can be repeated.
struct DeepReturnOutcome {
  bool is_back = false;
  std::string why;                       // unless it is
  std::optional<CheckpointTimes> times;  // if it was off its devices
};
DeepReturnOutcome return_to_devices(pid_t process);

}  // namespace cuvmm::cli
