// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver/driver.hpp"
#include "trace/record.hpp"

namespace cuvmm::hook {

// Where a thread's calls go: its current context, as a number that is never used twice, and that
// context's device.
struct Whereabouts {
  std::int16_t device = no_device;
  std::uint32_t context = 0;  // 0: none
};

// Asks the driver for the current context, and for its device the first time only.
Whereabouts whereabouts(const Driver& driver);

// The number by which a context stands in records; 0 for none.
std::uint32_t number_of_context(CUcontext context);

// The context begins or has ended: if this handle comes again, it is another context's.
void forget_context(CUcontext context);

}  // namespace cuvmm::hook
