// SPDX-License-Identifier: Apache-2.0
// The second half of a deep pause, and the first half of the resume after one: what a paused
// process still has on its devices (contexts, modules) leaves, or returns.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "checkpoint/process_checkpoint.hpp"
#include "share/control.hpp"

namespace cuvmm::checkpoint {

// Asks the process a ControlRequest, and returns its answer.
using AskProcess = std::function<Result<share::ControlAnswer>(const share::ControlRequest&)>;
// By its control socket.
AskProcess by_control_socket(pid_t process);

struct DeepPauseOutcome {
  CheckpointEnd end = CheckpointEnd::Unknown;  // then return_to_devices() helps, perhaps later
  std::string why;                             // unless OffDevices
  CheckpointTimes times;
  share::LeftMemory left{};  // where NVML says so
};

// The process must be paused. Can be repeated after any outcome, and after the death of the process
// that called it.
DeepPauseOutcome take_off_devices(pid_t process, Duration timeout, const AskProcess& ask);

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
