// SPDX-License-Identifier: Apache-2.0
// Calls that order work: the program's waits, events, values in memory, captures.
#include "hook/events/words.hpp"

namespace cuvmm::hook {
namespace {

TraceRecord wait(const Called& called, std::uint64_t stream, CUevent event = nullptr) {
  return {
      .event = TraceEvent::Wait, .address = number(event), .stream = stream, .other = called.took};
}

TraceRecord record_of(const Called& called, CUevent event, std::uint64_t stream) {
  return {.event = TraceEvent::EventRecord,
          .address = number(event),
          .stream = stream,
          .other = called.took};
}

TraceRecord stream_wait(const Called& called, CUevent event, std::uint64_t stream) {
  return {.event = TraceEvent::StreamWait,
          .address = number(event),
          .stream = stream,
          .other = called.took};
}

TraceRecord value(TraceEvent event, const Called& called, CUstream stream, CUdeviceptr address,
                  std::size_t size, std::uint64_t value) {
  return {.event = event,
          .detail = called.took_briefly(),
          .address = address,
          .size = size,
          .stream = called.stream(stream),
          .other = value};
}

TraceRecord capture_begin(const Called& called, CUstream stream, CUstreamCaptureMode mode,
                          CUgraph graph = nullptr) {
  return {.event = TraceEvent::CaptureBegin,
          .detail = static_cast<std::uint32_t>(mode),
          .address = number(graph),
          .stream = called.stream(stream)};
}

}  // namespace

CUVMM_EVENT(cuCtxSynchronize) {
  return wait(called, 0);
}
CUVMM_EVENT(cuCtxSynchronize_v2, CUcontext) {
  return wait(called, 0);
}
CUVMM_EVENT(cuStreamSynchronize, CUstream stream) {
  return wait(called, called.stream(stream));
}
CUVMM_EVENT(cuEventSynchronize, CUevent event) {
  return wait(called, 0, event);
}

CUVMM_EVENT(cuEventRecord, CUevent event, CUstream stream) {
  return record_of(called, event, called.stream(stream));
}
CUVMM_EVENT(cuEventRecordWithFlags, CUevent event, CUstream stream, unsigned) {
  return record_of(called, event, called.stream(stream));
}
CUVMM_EVENT(cuCtxRecordEvent, CUcontext, CUevent event) {
  return record_of(called, event, 0);
}
CUVMM_EVENT(cuGreenCtxRecordEvent, CUgreenCtx, CUevent event) {
  return record_of(called, event, 0);
}

CUVMM_EVENT(cuStreamWaitEvent, CUstream stream, CUevent event, unsigned) {
  return stream_wait(called, event, called.stream(stream));
}
CUVMM_EVENT(cuCtxWaitEvent, CUcontext, CUevent event) {
  return stream_wait(called, event, 0);
}
CUVMM_EVENT(cuGreenCtxWaitEvent, CUgreenCtx, CUevent event) {
  return stream_wait(called, event, 0);
}

#define CUVMM_VALUE(symbol, event, type)                                               \
  CUVMM_EVENT(symbol, CUstream stream, CUdeviceptr address, type expected, unsigned) { \
    return value(TraceEvent::event, called, stream, address, sizeof(type), expected);  \
  }
CUVMM_VALUE(cuStreamWaitValue32, ValueWait, cuuint32_t)
CUVMM_VALUE(cuStreamWaitValue32_v2, ValueWait, cuuint32_t)
CUVMM_VALUE(cuStreamWaitValue64, ValueWait, cuuint64_t)
CUVMM_VALUE(cuStreamWaitValue64_v2, ValueWait, cuuint64_t)
CUVMM_VALUE(cuStreamWriteValue32, ValueWrite, cuuint32_t)
CUVMM_VALUE(cuStreamWriteValue32_v2, ValueWrite, cuuint32_t)
CUVMM_VALUE(cuStreamWriteValue64, ValueWrite, cuuint64_t)
CUVMM_VALUE(cuStreamWriteValue64_v2, ValueWrite, cuuint64_t)
#undef CUVMM_VALUE

CUVMM_EVENT(cuStreamBeginCapture, CUstream stream) {
  return capture_begin(called, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
CUVMM_EVENT(cuStreamBeginCapture_v2, CUstream stream, CUstreamCaptureMode mode) {
  return capture_begin(called, stream, mode);
}
CUVMM_EVENT(cuStreamBeginCaptureToGraph, CUstream stream, CUgraph graph, const CUgraphNode*,
            const CUgraphEdgeData*, size_t, CUstreamCaptureMode mode) {
  return capture_begin(called, stream, mode, graph);
}
CUVMM_EVENT(cuStreamEndCapture, CUstream stream, CUgraph* graph) {
  return {.event = TraceEvent::CaptureEnd,
          .address = number(given(called, graph)),
          .stream = called.stream(stream)};
}

}  // namespace cuvmm::hook
