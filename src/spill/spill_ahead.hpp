// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "alloc/device_memory.hpp"
#include "base/clock.hpp"

namespace cuvmm {

// True if the device is so full that memory may soon be spilled.
bool is_nearly_full(DeviceMemory& device);

// Pins host memory for a device that is nearly full, before it is needed: pinning takes longer than
// copying the same memory ten times. Memory that has not been needed for long is given back.
class SpillAhead {
 public:
  // How much to keep ready beyond the peak use, provided that the program may spill it and the host
  // has it.
  explicit SpillAhead(Size most_ahead = 2 * GiB) : most_ahead_(most_ahead) {}

  // One step for that device; takes a few milliseconds at most. True if there is more to do.
  // `mapped`: far memory that is mapped for the device but unused, and so ready too.
  bool step(DeviceMemory& device, Size mapped, std::uint64_t now);

 private:
  struct Seen {
    Size spilled = 0;    // at the last look
    Size most_used = 0;  // peak since it was last idle
    std::uint64_t needed_at = 0;
  };
  const Size most_ahead_;
  std::map<int, Seen> seen_;  // by device
};

}  // namespace cuvmm
