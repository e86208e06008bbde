// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>
#include <optional>

#include "checkpoint/process_checkpoint.hpp"
#include "observe/devices.hpp"

namespace cuvmm::checkpoint {

// The driver and NVML, for the checkpoint of a process. Each takes some 20 ms to load, so they load
// in threads of their own, beside what the caller does before it needs them.
class Libraries {
 public:
  // Sets this process's environment to what the process's driver needs.
  explicit Libraries(pid_t process);

  // The rest waits until they are loaded.
  Result<ProcessCheckpoint>& checkpoint();
  // Nothing if it could not be loaded.
  const std::optional<observe::Nvml>& nvml();

 private:
  std::future<Result<ProcessCheckpoint>> loading_checkpoint_;
  std::future<std::optional<observe::Nvml>> loading_nvml_;
  std::optional<Result<ProcessCheckpoint>> checkpoint_;
  std::optional<std::optional<observe::Nvml>> nvml_;
};

}  // namespace cuvmm::checkpoint
