// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "base/options.hpp"

namespace cuvmm {

struct ScheduleSettings {
  Schedule policy = Schedule::Fifo;
  Duration window{50};
  // Operations that a lane holds before submission waits.
  std::size_t capacity = 512;
  // What is in flight may wait for what is not issued yet. After this long without anything being
  // done, work of other streams is let through.
  Duration patience{5'000};
  // What has waited so long is named in the log.
  Duration watchdog{10'000'000};
};

}  // namespace cuvmm
