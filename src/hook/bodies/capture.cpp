// SPDX-License-Identifier: Apache-2.0
// Captures are counted, since cuvmm must do much of its own work differently while one is live. A
// capture may also end with its stream (order.cpp) or its context (contexts.cpp).
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

template <Call call>
bool is_captured(const Forward<call>& forward, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const Driver& driver = forward.engine().driver();
  const CUresult answer = forward.flavour() == Flavour::PerThread
                              ? driver.cuStreamIsCapturing_per_thread(stream, &status)
                              : driver.cuStreamIsCapturing(stream, &status);
  return answer == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// The stream as the call names it. The owner matters only for default streams.
template <Call call>
Captures::Origin origin_of(const Forward<call>& forward, CUstream stream) {
  const StreamName name = stream_name(forward, stream);
  if (!name.is_per_thread()) return {.handle = stream};
  return {.context = current_context(forward.engine().driver()),
          .handle = CU_STREAM_PER_THREAD,
          .thread = PerThreadUse::this_thread()};
}

// The same with the stream's context. A stream that is already capturing is not queried.
template <Call call>
Captures::Origin origin_of_new(const Forward<call>& forward, CUstream stream) {
  Captures::Origin origin = origin_of(forward, stream);
  if (origin.thread != 0 || stream_name(forward, stream).is_legacy()) return origin;
  if (is_captured(forward, stream)) return origin;
  const Driver& driver = forward.engine().driver();
  if (driver.cuStreamGetCtx_v9020(stream, &origin.context) != CUDA_SUCCESS)
    origin.context = nullptr;
  return origin;
}

// Announces first: a deferred copy may be work of this stream from before the capture. Counts the
// capture before it begins, so that no other thread breaks it unknowingly, and marks the stream's
// pending frees while that is still possible.
template <Call call>
CUresult begin_capture(const Forward<call>& forward, CUstream stream, auto... arguments) {
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  Captures& captures = forward.engine().captures();
  if (StreamClock* clock = clock_of(forward)) {
    clock->mark_pending(stream_name(forward, stream));
    clock->note_work_before_capture(stream_name(forward, stream));
  }
  const std::uint64_t number = captures.began(origin_of_new(forward, stream));
  const CUresult answer = forward(stream, arguments...);
  if (answer != CUDA_SUCCESS) captures.never_began(number);
  return answer;
}

}  // namespace

CUVMM_HOOK(cuStreamBeginCapture, CUstream stream) {
  return begin_capture(forward, stream);
}
CUVMM_HOOK(cuStreamBeginCapture_v2, CUstream stream, CUstreamCaptureMode mode) {
  return begin_capture(forward, stream, mode);
}
CUVMM_HOOK(cuStreamBeginCaptureToGraph, CUstream stream, CUgraph graph, const CUgraphNode* after,
           const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {
  return begin_capture(forward, stream, graph, after, edges, count, mode);
}

// Whatever the answer, the capture has ended if the stream is no longer capturing.
CUVMM_HOOK(cuStreamEndCapture, CUstream stream, CUgraph* graph) {
  const bool was_captured = is_captured(forward, stream);
  const CUresult answer = forward(stream, graph);
  if (was_captured && !is_captured(forward, stream)) {
    forward.engine().captures().ended(origin_of(forward, stream));
  }
  return answer;
}

// Input and output share one variable, so the input is saved for the trace.
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
