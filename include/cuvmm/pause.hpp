// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "cuvmm/pause.h"
#include "cuvmm/result.hpp"

namespace cuvmm {
inline namespace v1 {

using PauseReport = cuvmm_pause_report;
using AwayInfo = cuvmm_away_info;

inline Result<PauseReport> pause(std::chrono::microseconds timeout, std::uint32_t flags = 0) {
  return detail::answer_with<PauseReport>([&](PauseReport* report, cuvmm_error* error) {
    return cuvmm_pause(detail::in_us(timeout), flags, report, error);
  });
}

inline Result<PauseReport> resume(std::uint32_t flags = 0) {
  return detail::answer_with<PauseReport>(
      [&](PauseReport* report, cuvmm_error* error) { return cuvmm_resume(flags, report, error); });
}

inline Result<AwayInfo> away_info() {
  return detail::answer_with<AwayInfo>(&cuvmm_get_away_info);
}

}  // namespace v1
}  // namespace cuvmm
