// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/options.hpp"
#include "driver/driver.hpp"

namespace cuvmm {

// Starts the process's trace, which ends with the process. Does nothing if no trace was requested;
// if the file cannot be created, logs a warning and the program runs without.
void start_trace(const Options& options);

// Adds the devices, once the program has initialized the driver.
void describe_devices_in_trace(const Driver& driver);

// Bracket a call that cuvmm answers instead of the driver. The number of such calls and their total
// time form the trace's last record.
[[gnu::cold]] std::uint64_t begin_own_time();
[[gnu::cold]] void end_own_time(std::uint64_t began);

// Call in a forked child.
void forget_trace();

}  // namespace cuvmm
