// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "base/options.hpp"

namespace cuvmm {

struct ScheduleSettings {
  Schedule policy = Schedule::Fifo;
  Duration window{50};
  // The number of operations that a lane holds before submission blocks.
  std::size_t capacity = 512;
  // Work in flight may depend on operations not issued yet. After this long without progress, work
  // on other streams is let through.
  Duration patience{5'000};
  // A wait this long is logged.
  Duration watchdog{10'000'000};
};

}  // namespace cuvmm
