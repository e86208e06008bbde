// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "driver/calls.hpp"

namespace cuvmm {

namespace detail {
constexpr bool runs_host_function(std::string_view name) {
  return name.starts_with("cuLaunchHostFunc") || name == "cuStreamAddCallback";
}
constexpr bool takes_device_time(std::string_view name) {
  if (runs_host_function(name)) return false;
  return name.starts_with("cuLaunch") || name == "cuGraphLaunch" || name.starts_with("cuMemcpy") ||
         name.starts_with("cuMemset") || name.starts_with("cuMemPrefetch") ||
         name == "cuMemDiscardAndPrefetchBatchAsync" || name == "cuMemBatchDecompressAsync";
}
constexpr bool holds_stream(std::string_view name) {
  return runs_host_function(name) || name.starts_with("cuStreamWait") ||
         name.starts_with("cuStreamBatchMemOp") || name == "cuWaitExternalSemaphoresAsync";
}
template <class Predicate>
constexpr std::array<bool, call_count> calls_that(Predicate predicate) {
  std::array<bool, call_count> all{};
  for (std::size_t i = 0; i < call_count; ++i) all[i] = predicate(all_calls()[i].name);
  return all;
}
inline constexpr auto device_work = calls_that(takes_device_time);
inline constexpr auto stream_holders = calls_that(holds_stream);
}  // namespace detail

// Calls that take a device's time. Excludes calls that only order or signal work, and host
// functions, since work in flight may depend on them.
constexpr bool is_device_work(Call call) {
  return detail::device_work[static_cast<std::size_t>(call)];
}

// Calls that may keep the later work of their stream waiting for any time, while the device is free
// for others: host functions, and waits for events, values and semaphores.
constexpr bool may_hold_stream(Call call) {
  return detail::stream_holders[static_cast<std::size_t>(call)];
}

}  // namespace cuvmm
