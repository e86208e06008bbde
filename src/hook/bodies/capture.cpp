// SPDX-License-Identifier: Apache-2.0
#include "hook/record.hpp"

namespace cuvmm::hook {

// In and out stand in the same place, so what went in is kept for the trace.
CUVMM_HOOK(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode* mode) {
  const auto asked = mode != nullptr ? *mode : CU_STREAM_CAPTURE_MODE_GLOBAL;
  const CUresult answer = forward(mode);
  if (answer == CUDA_SUCCESS && mode != nullptr) {
    record(forward, answer,
           {.event = TraceEvent::CaptureMode,
            .detail = static_cast<std::uint32_t>(asked),
            .other = static_cast<std::uint64_t>(*mode)});
  }
  return answer;
}

}  // namespace cuvmm::hook
