// SPDX-License-Identifier: Apache-2.0
// NVTX ranges around what clients wait for and what policies decide, where the header is there when
// we are built and a profiler when we run. Without a profiler a range is a load and a branch.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define CUVMM_HAS_NVTX 1
#endif

#include <cstdlib>

namespace cuvmm {

#ifdef CUVMM_HAS_NVTX
// A profiler says where it is before the program starts.
inline bool profiler_is_there() {
  static const bool is_there = std::getenv("NVTX_INJECTION64_PATH") != nullptr;
  return is_there;
}

class ScheduleRange {
 public:
  explicit ScheduleRange(const char* name) : is_open_(profiler_is_there()) {
    if (is_open_) [[unlikely]]
      nvtxRangePushA(name);
  }
  ~ScheduleRange() {
    if (is_open_) [[unlikely]]
      nvtxRangePop();
  }
  ScheduleRange(const ScheduleRange&) = delete;
  ScheduleRange& operator=(const ScheduleRange&) = delete;

 private:
  bool is_open_;
};
#else
class ScheduleRange {
 public:
  explicit ScheduleRange(const char*) {}
};
#endif

}  // namespace cuvmm
