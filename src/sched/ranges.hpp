// SPDX-License-Identifier: Apache-2.0
// NVTX ranges around the waits of clients and the decisions of policies; compiled in if the header
// is present at build time, active if a profiler is attached. Without one, a range costs a load and
// a branch.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define CUVMM_HAS_NVTX 1
#endif

#include <cstdlib>

#include "base/made_once.hpp"

namespace cuvmm {

#ifdef CUVMM_HAS_NVTX
// A profiler sets this variable before the program starts.
inline bool profiler_is_there() {
  static constinit AskedOnce is_there;
  return is_there.get([] { return std::getenv("NVTX_INJECTION64_PATH") != nullptr; });
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
