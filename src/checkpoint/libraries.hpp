// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <future>
#include <optional>

#include "checkpoint/process_checkpoint.hpp"
#include "observe/devices.hpp"

namespace cuvmm::checkpoint {

// The driver and NVML, for the checkpoint of a process. NVML takes some 20 ms to load and as long
// again to find each device, so they load in threads of their own, beside what the caller does
// before it needs them.
class Libraries {
 public:
  // A pause looks at all devices, a return only at those that the process needs.
  enum class For : std::uint8_t { Pause, Return };
  // Sets this process's environment to what the process's driver needs.
  Libraries(pid_t process, For purpose);

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
