// SPDX-License-Identifier: Apache-2.0
// The time that calls would have taken on the measured card. A model that adds up microseconds, not
// a benchmark. Calls that were not measured cost nothing.
#pragma once

#include <cstdint>

#include "base/size.hpp"
#include "sim/rows.hpp"

namespace cuvmm::sim {

// Adds the fixed cost of a call (for 0 bytes), or the additional cost of this many bytes.
void cost_of(Row row, Size bytes);

// Activities that no single call stands for. They are charged each time they happen, whichever call
// or graph causes them.
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

// For the work of this thread.
std::int64_t modelled_ns_of_this_thread();

}  // namespace cuvmm::sim
