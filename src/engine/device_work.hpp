// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "driver/calls.hpp"

namespace cuvmm {

namespace detail {
constexpr bool takes_device_time(std::string_view name) {
  if (name == "cuLaunchHostFunc") return false;
  return name.starts_with("cuLaunch") || name == "cuGraphLaunch" || name.starts_with("cuMemcpy") ||
         name.starts_with("cuMemset") || name.starts_with("cuMemPrefetch") ||
         name == "cuMemDiscardAndPrefetchBatchAsync" || name == "cuMemBatchDecompressAsync";
}
inline constexpr auto device_work = [] {
  std::array<bool, call_count> all{};
  for (std::size_t i = 0; i < call_count; ++i) all[i] = takes_device_time(all_calls()[i].name);
  return all;
}();
}  // namespace detail

// Calls that take a device's time. Excludes calls that only order or signal work, and host
// functions, since work in flight may depend on them.
constexpr bool is_device_work(Call call) {
  return detail::device_work[static_cast<std::size_t>(call)];
}

}  // namespace cuvmm
