// SPDX-License-Identifier: Apache-2.0
#include "hook/sync_memops.hpp"

namespace cuvmm::hook {

bool is_synchronous(const Memory& memory, CUdeviceptr address) {
  const auto held = memory.find(address);
  return held && (held->pins & pin::sync_memops) != 0;
}

SynchronousCopy::SynchronousCopy(Engine& engine, StreamName stream)
    : driver_(engine.driver()), stream_(stream.explicit_handle()) {
  if (stream_ == CU_STREAM_LEGACY) no_capture_begins_.emplace(engine.captures());
}

CUresult SynchronousCopy::finish(CUresult answer) const {
  if (answer != CUDA_SUCCESS) return answer;
  const RelaxedCapture relaxed{driver_};
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = driver_.cuStreamIsCapturing(stream_, &status);
  if (asked != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE) return answer;
  return driver_.cuStreamSynchronize(stream_);
}

}  // namespace cuvmm::hook
