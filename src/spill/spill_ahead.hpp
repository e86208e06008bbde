// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "alloc/device_memory.hpp"
#include "base/clock.hpp"

namespace cuvmm {

// From here on memory may soon be spilled.
bool is_nearly_full(DeviceMemory& device);

// Has memory of the host pinned for a device that is nearly full, before it is needed: pinning
// takes longer than to copy that memory ten times. What nobody has needed for long goes back.
class SpillAhead {
 public:
  // So much is ready beyond what was needed at the most, where the program may spill as much and
  // the host has it.
  explicit SpillAhead(Size most_ahead = 2 * GiB) : most_ahead_(most_ahead) {}

  // A step for that device, of some milliseconds at the most. Whether there is more to do.
  // `mapped`: memory elsewhere that is mapped for it and nobody's, and so ready too.
  bool look_after(DeviceMemory& device, Size mapped, std::uint64_t now);

 private:
  struct Seen {
    Size spilled = 0;    // when it was last looked at
    Size most_used = 0;  // since it was last idle
    std::uint64_t needed_at = 0;
  };
  const Size most_ahead_;
  std::map<int, Seen> seen_;  // by device
};

}  // namespace cuvmm
