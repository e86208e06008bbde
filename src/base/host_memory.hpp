// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/size.hpp"

namespace cuvmm {

// How much memory the host has in total; 0 if the system does not tell. A program may have a filter
// of system calls, under which glibc's sysconf() returns garbage.
Size total_host_memory(const std::string& root = "");

// How much memory the host has available for this process: MemAvailable, and at most what each
// control group that contains the process has left below its limit. Page cache that the kernel
// would reclaim counts as available. Thread-safe. `root`: the folder that has /proc and /sys, for
// tests.
Size available_host_memory(const std::string& root = "");

// What the process leaves to others of the available memory.
inline constexpr Size left_to_the_host = 512 * MiB;

// Available memory beyond that.
inline Size beyond_left_to_the_host(Size available) {
  return available > left_to_the_host ? available - left_to_the_host : 0;
}

}  // namespace cuvmm
