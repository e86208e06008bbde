// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver/driver.hpp"
#include "trace/record.hpp"

namespace cuvmm::hook {

// The target of a thread's calls: its current context, as a number that is never reused, and that
// context's device.
struct Whereabouts {
  std::int16_t device = no_device;
  std::uint32_t context = 0;  // 0: no context
};

// Asks the driver for the current context, and for its device only the first time.
Whereabouts whereabouts(const Driver& driver);

// The number of a context in records; 0 for none.
std::uint32_t number_of_context(CUcontext context);

// Call when a context begins or has ended: from then on, the handle denotes another context.
void forget_context(CUcontext context);

}  // namespace cuvmm::hook
