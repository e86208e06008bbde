// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/options.hpp"
#include "vmm/available_host_budget.hpp"

namespace cuvmm {

class LeasedBudget;
class Lessor;

// The options that concern memory.
struct MemorySettings {
  SizeLimit limit = SizeLimit::none();
  // Limits of individual devices; 0: `limit`.
  std::array<Size, HamiVariables::most_devices> device_limits{};
  SizeLimit cache = SizeLimit::none();
  Grow grow = Grow::Loose;
  FreeMode free = FreeMode::Exact;
  Compact compact = Compact::Auto;
  Duration wait{1'000'000};
  Duration node_wait{60'000'000};
  Spill spill;
  DeviceList spill_peers;
  Lessor* lessor = nullptr;  // of device and host memory; nullptr: none
  // For all host memory that this process pins for device contents; nullptr: no limit.
  std::shared_ptr<LeasedBudget> host = nullptr;
  HostMemoryReader available_on_host = &read_available_host_memory;  // for memory that spills there
  Size chunk = 0;  // size of all chunks of stream-ordered memory; 0: the arenas choose

  Size limit_of(int device, Size memory) const {
    const auto number = static_cast<std::size_t>(device);
    if (number < device_limits.size() && device_limits[number] != 0) return device_limits[number];
    return limit.is_none() ? unlimited : limit.of(memory);
  }
};

}  // namespace cuvmm
