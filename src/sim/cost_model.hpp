// SPDX-License-Identifier: Apache-2.0
// What calls would have taken on the card that was measured: a model that sums
// microseconds, no benchmark. What was not measured costs nothing.
#pragma once

#include <cstdint>

#include "base/size.hpp"
#include "sim/rows.hpp"

namespace cuvmm::sim {

// Adds what a call costs however little it is asked for (0 bytes), or what these bytes cost on
// top of that.
void cost_of(Row row, Size bytes);

// What no single call stands for: charged as often as it is done, whichever call or graph asked.
enum class Activity : std::uint8_t {
  CopyWithinDevice,
  CopyBetweenDevices,
  CopyPinned,  // to or from page-locked memory of the host
  CopyPageable,
  Set,
  GrowPool,
  ShrinkPool,
};
void cost_of(Activity activity, Size bytes);

double modelled_microseconds();

// Of what this thread has done.
std::int64_t modelled_ns_of_this_thread();

}  // namespace cuvmm::sim
