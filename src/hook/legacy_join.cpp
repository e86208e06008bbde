// SPDX-License-Identifier: Apache-2.0
#include "hook/legacy_join.hpp"

#include <algorithm>

#include "driver/current_context.hpp"

namespace cuvmm::hook {

void LegacyJoin::add(CUcontext owner) {
  const auto end = owners_.begin() + count_;
  if (std::find(owners_.begin(), end, owner) != end) return;
  // Only batch copies name memory of so many contexts, and those are unordered anyway.
  if (count_ == most_owners) return;
  owners_[count_++] = owner;
}

CUresult LegacyJoin::follow(CUcontext follower, CUcontext followed) const {
  const Driver& driver = engine_->driver();
  const RelaxedCapture relaxed{driver};
  CUevent event = nullptr;
  {
    const InContext in_followed{driver, followed};
    if (!in_followed.ok()) return in_followed.answer();
    CUresult answer = driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (answer != CUDA_SUCCESS) return answer;
    answer = driver.cuEventRecord(event, CU_STREAM_LEGACY);
    if (answer != CUDA_SUCCESS) {
      driver.cuEventDestroy(event);
      return answer;
    }
  }
  const InContext in_follower{driver, follower};
  CUresult answer = in_follower.answer();
  if (in_follower.ok()) answer = driver.cuStreamWaitEvent(CU_STREAM_LEGACY, event, 0);
  driver.cuEventDestroy(event);
  engine_->submission_epoch().leave();
  engine_->legacy_barrier().legacy_submitted();
  return answer;
}

CUresult LegacyJoin::begin() const {
  if (count_ == 0) return CUDA_SUCCESS;
  const Driver& driver = engine_->driver();
  const CUcontext current = current_context(driver);
  for (std::size_t i = 0; i < count_; ++i) {
    const CUresult answer = follow(current, owners_[i]);
    if (answer != CUDA_SUCCESS) return answer;
  }
  return CUDA_SUCCESS;
}

CUresult LegacyJoin::finish(CUresult answer) const {
  if (count_ == 0 || answer != CUDA_SUCCESS) return answer;
  const CUcontext current = current_context(engine_->driver());
  for (std::size_t i = 0; i < count_; ++i) {
    const CUresult joined = follow(owners_[i], current);
    if (joined != CUDA_SUCCESS) answer = joined;
  }
  return answer;
}

}  // namespace cuvmm::hook
