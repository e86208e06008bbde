// SPDX-License-Identifier: Apache-2.0
// The second half of a deep pause, and the first half of the resume after one: takes the contexts
// and modules that a paused process still has off its devices, or brings them back.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "checkpoint/libraries.hpp"
#include "checkpoint/process_checkpoint.hpp"
#include "share/control.hpp"

namespace cuvmm::checkpoint {

// Sends a ControlRequest to the process, and returns its answer.
using AskProcess = std::function<Result<share::ControlAnswer>(const share::ControlRequest&)>;
// Asks over the process's control socket.
AskProcess by_control_socket(pid_t process);

struct DeepPauseOutcome {
  CheckpointEnd end = CheckpointEnd::Unknown;  // if Unknown, return_to_devices() may help later
  std::string why;                             // unless OffDevices
  CheckpointTimes times;
  share::LeftMemory left{};  // if NVML reports it
  bool is_resumed = false;   // another command has resumed it meanwhile
};

// The process must be paused. Can be repeated after any outcome, and after the death of the process
// that called it.
DeepPauseOutcome take_off_devices(Libraries& libraries, pid_t process, Duration timeout,
                                  const AskProcess& ask);

// Does nothing if the process is on its devices. Can be repeated after any outcome, and after the
// death of the process that called it.
struct DeepReturnOutcome {
  CheckpointEnd end = CheckpointEnd::Unknown;  // if OffDevices, the return needs room
  std::string why;                             // unless OnDevices
  std::optional<CheckpointTimes> times;        // if it was off its devices

  bool is_back() const { return end == CheckpointEnd::OnDevices; }
};
DeepReturnOutcome return_to_devices(pid_t process, const AskProcess& ask);

// In bytes.
Size sum_of(const share::LeftMemory& left);

}  // namespace cuvmm::checkpoint
