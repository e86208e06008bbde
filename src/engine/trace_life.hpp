// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/options.hpp"
#include "driver/driver.hpp"

namespace cuvmm {

// The trace of this process, from the engine's start to the process' end. Does nothing where no
// trace was asked for; where its file cannot be had, one line says so and the program goes on.
void start_trace(const Options& options);

// Adds the devices, once the driver has been started by the program.
void describe_devices_in_trace(const Driver& driver);

// Around a call that is answered here, not by the driver: how many there were, and what they took
// in all, is the trace's last record.
[[gnu::cold]] std::uint64_t begin_own_time();
[[gnu::cold]] void end_own_time(std::uint64_t began);

// In a forked child.
void forget_trace();

}  // namespace cuvmm
