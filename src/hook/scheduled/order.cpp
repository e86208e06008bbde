// SPDX-License-Identifier: Apache-2.0
// Events, waits and queries. Work that is still queued counts as not done; the driver knows whether
// issued work is.
#include "hook/scheduled/dispatch_mode.hpp"
#include "hook/scheduled/memory_of_call.hpp"

namespace cuvmm::hook {
namespace {

Scheduling::Parts& parts_of(Engine& engine) {
  return *engine.scheduling().parts();
}

CUresult or_else(CUresult answer, CUresult failed_before) {
  return answer == CUDA_SUCCESS ? failed_before : answer;
}

// Graphs may record events or wait for them when they run.
void settle_graphs(Engine& engine) {
  if (engine.scheduling().do_graphs_use_events()) parts_of(engine).scheduler.settle_graphs();
}

// Events that other processes see, or that captures use, must be current in the driver.
template <Call call, class... Arguments>
CUresult with_event(const Forward<call>& forward, CUstream stream, const OrderedBy& by,
                    Arguments... arguments) {
  settle_graphs(forward.engine());
  const DispatchMode mode = dispatch_mode(forward, stream);
  Scheduler& scheduler = mode.scheduler();
  Request request = mode.request(call);
  request.event = by.event;
  request.event_use = by.use;
  const CUcontext of = scheduler.context_of(by.event);
  const bool is_known = of != nullptr && mode.stream != nullptr &&
                        (by.use == EventUse::WaitsFor || of == mode.stream->context);
  if (!is_known || forward.engine().captures().any()) {
    return make_directly(mode, by, forward, arguments...);
  }
  return queue_as_it_is(mode, request, forward, arguments...);
}

void settle_event(Engine& engine, CUevent event) {
  settle_graphs(engine);
  parts_of(engine).scheduler.settle_event(event, false);
}

bool is_queued(Engine& engine, CUevent event) {
  settle_graphs(engine);
  return parts_of(engine).scheduler.has_unissued(event);
}

template <Call call>
CUresult end_event(const Forward<call>& forward, CUevent event) {
  settle_graphs(forward.engine());
  parts_of(forward.engine()).scheduler.settle_event(event, true);
  return make_now(forward, event);
}

// The driver knows only the events' earlier records. If it does not even accept those, the reason
// may be that there are none, so the queued ones are issued first.
template <Call call>
CUresult elapsed(const Forward<call>& forward, float* milliseconds, CUevent first, CUevent second) {
  Engine& engine = forward.engine();
  for (bool queued = is_queued(engine, first) || is_queued(engine, second);; queued = false) {
    float earlier = 0;
    float* const place = queued && milliseconds != nullptr ? &earlier : milliseconds;
    const CUresult answer = make_now(forward, place, first, second);
    if (!queued) return answer;
    if (answer == CUDA_SUCCESS || answer == CUDA_ERROR_NOT_READY) return CUDA_ERROR_NOT_READY;
    settle_event(engine, first);
    settle_event(engine, second);
  }
}

template <Call call>
CUresult end_stream(const Forward<call>& forward, CUstream stream) {
  StreamTable& streams = parts_of(forward.engine()).streams;
  const StreamState* known = streams.known({.handle = stream});
  if (known != nullptr) parts_of(forward.engine()).scheduler.settle_stream(*known);
  return make_now(forward, stream);
}

template <Call call, class... Arguments>
CUresult wait_for_context(const Forward<call>& forward, CUcontext context, Arguments... arguments) {
  Scheduler& scheduler = parts_of(forward.engine()).scheduler;
  scheduler.settle_context(context);
  const CUresult answer = make_now(forward, arguments...);
  return or_else(answer, scheduler.failures().take_of_context(context));
}

// Work queued earlier on any stream of the context could affect the capture, so it is issued first.
// Facts about the stream are looked up before it captures.
template <Call call, class... Arguments>
CUresult begin_capture(const Forward<call>& forward, CUstream stream, Arguments... arguments) {
  static_cast<void>(dispatch_mode(forward, stream));
  Scheduler& scheduler = parts_of(forward.engine()).scheduler;
  scheduler.settle_all();
  scheduler.wait_for_marks();
  return make_now(forward, stream, arguments...);
}

template <Call call, class Word>
CUresult wait_or_write(const Forward<call>& forward, CUstream stream, CUdeviceptr address,
                       Word value, unsigned flags, unsigned known_flags) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  const Request request = mode.request(call, 0, sizeof(Word));
  const bool later =
      mode.is_open_to_queue && (flags & ~known_flags) == 0 && address % sizeof(Word) == 0 &&
      look_up(forward.engine(), address, sizeof(Word), Touch::Write).kind <= CopyMemory::Pinned;
  return later ? queue_as_it_is(mode, request, forward, stream, address, value, flags)
               : make_in_turn(mode, request, forward, stream, address, value, flags);
}

template <Call call, class Word>
CUresult value_in_turn(const Forward<call>& forward, CUstream stream, CUdeviceptr address,
                       Word value, unsigned flags) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  return make_in_turn(mode, mode.request(call, 0, sizeof(Word)), forward, stream, address, value,
                      flags);
}

// This flag and all lower values say how to compare.
constexpr unsigned known_wait_flags = CU_STREAM_WAIT_VALUE_NOR;
constexpr unsigned known_write_flags = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;

}  // namespace

CUVMM_SCHEDULE(cuEventRecord, CUevent event, CUstream stream) {
  return with_event(forward, stream, {event, EventUse::Records}, event, stream);
}
CUVMM_SCHEDULE(cuEventRecordWithFlags, CUevent event, CUstream stream, unsigned flags) {
  if (flags == CU_EVENT_RECORD_DEFAULT) {
    return with_event(forward, stream, {event, EventUse::Records}, event, stream, flags);
  }
  settle_graphs(forward.engine());
  return make_directly(dispatch_mode(forward, stream), {event, EventUse::Records}, forward, event,
                       stream, flags);
}
CUVMM_SCHEDULE(cuStreamWaitEvent, CUstream stream, CUevent event, unsigned flags) {
  if (flags == CU_EVENT_WAIT_DEFAULT) {
    return with_event(forward, stream, {event, EventUse::WaitsFor}, stream, event, flags);
  }
  settle_graphs(forward.engine());
  return make_directly(dispatch_mode(forward, stream), {event, EventUse::WaitsFor}, forward, stream,
                       event, flags);
}

CUVMM_SCHEDULE(cuEventCreate, CUevent* event, unsigned flags) {
  const CUresult answer = make_now(forward, event, flags);
  if (answer == CUDA_SUCCESS && event != nullptr) {
    Scheduler& scheduler = parts_of(forward.engine()).scheduler;
    if ((flags & CU_EVENT_INTERPROCESS) != 0) {
      scheduler.event_is_shared(*event);
    } else {
      scheduler.event_began(*event, current_context(forward.engine().driver()));
    }
  }
  return answer;
}
CUVMM_SCHEDULE(cuIpcGetEventHandle, CUipcEventHandle* handle, CUevent event) {
  Scheduler& scheduler = parts_of(forward.engine()).scheduler;
  scheduler.settle_event(event, true);
  scheduler.event_is_shared(event);
  return make_now(forward, handle, event);
}
CUVMM_SCHEDULE(cuIpcOpenEventHandle, CUevent* event, CUipcEventHandle handle) {
  const CUresult answer = make_now(forward, event, handle);
  if (answer == CUDA_SUCCESS) parts_of(forward.engine()).scheduler.event_is_shared(*event);
  return answer;
}
CUVMM_SCHEDULE(cuEventDestroy, CUevent event) {
  return end_event(forward, event);
}
CUVMM_SCHEDULE(cuEventDestroy_v2, CUevent event) {
  return end_event(forward, event);
}

CUVMM_SCHEDULE(cuEventQuery, CUevent event) {
  if (is_queued(forward.engine(), event)) return CUDA_ERROR_NOT_READY;
  return make_now(forward, event);
}
CUVMM_SCHEDULE(cuEventSynchronize, CUevent event) {
  settle_event(forward.engine(), event);
  return make_now(forward, event);
}
CUVMM_SCHEDULE(cuEventElapsedTime, float* milliseconds, CUevent first, CUevent second) {
  return elapsed(forward, milliseconds, first, second);
}
CUVMM_SCHEDULE(cuEventElapsedTime_v2, float* milliseconds, CUevent first, CUevent second) {
  return elapsed(forward, milliseconds, first, second);
}

CUVMM_SCHEDULE(cuStreamSynchronize, CUstream stream) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  if (mode.stream == nullptr) return make_now(forward, stream);
  mode.scheduler().settle_stream(*mode.stream);
  Failures& failures = mode.scheduler().failures();
  const CUresult answer = make_now(forward, stream);
  return or_else(answer, failures.take_of_stream(mode.stream->id));
}
CUVMM_SCHEDULE(cuStreamQuery, CUstream stream) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  if (mode.stream == nullptr) return make_now(forward, stream);
  if (mode.scheduler().has_unissued(*mode.stream)) return CUDA_ERROR_NOT_READY;
  Failures& failures = mode.scheduler().failures();
  const CUresult answer = make_now(forward, stream);
  if (answer == CUDA_ERROR_NOT_READY) return answer;
  return or_else(answer, failures.take_of_stream(mode.stream->id));
}
CUVMM_SCHEDULE(cuCtxSynchronize) {
  return wait_for_context(forward, current_context(forward.engine().driver()));
}
CUVMM_SCHEDULE(cuCtxSynchronize_v2, CUcontext context) {
  const CUcontext meant = context != nullptr ? context : current_context(forward.engine().driver());
  return wait_for_context(forward, meant, context);
}

CUVMM_SCHEDULE(cuStreamDestroy, CUstream stream) {
  return end_stream(forward, stream);
}
CUVMM_SCHEDULE(cuStreamDestroy_v2, CUstream stream) {
  return end_stream(forward, stream);
}

CUVMM_SCHEDULE(cuStreamBeginCapture, CUstream stream) {
  return begin_capture(forward, stream);
}
CUVMM_SCHEDULE(cuStreamBeginCapture_v2, CUstream stream, CUstreamCaptureMode mode) {
  return begin_capture(forward, stream, mode);
}
CUVMM_SCHEDULE(cuStreamBeginCaptureToGraph, CUstream stream, CUgraph graph,
               const CUgraphNode* after, const CUgraphEdgeData* edges, size_t count,
               CUstreamCaptureMode mode) {
  return begin_capture(forward, stream, graph, after, edges, count, mode);
}

#define CUVMM_SCHEDULE_VALUES(bits)                                                   \
  CUVMM_SCHEDULE(cuStreamWaitValue##bits##_v2, CUstream stream, CUdeviceptr address,  \
                 cuuint##bits##_t value, unsigned flags) {                            \
    return wait_or_write(forward, stream, address, value, flags, known_wait_flags);   \
  }                                                                                   \
  CUVMM_SCHEDULE(cuStreamWriteValue##bits##_v2, CUstream stream, CUdeviceptr address, \
                 cuuint##bits##_t value, unsigned flags) {                            \
    return wait_or_write(forward, stream, address, value, flags, known_write_flags);  \
  }                                                                                   \
  /* Few devices take these any more. */                                              \
  CUVMM_SCHEDULE(cuStreamWaitValue##bits, CUstream stream, CUdeviceptr address,       \
                 cuuint##bits##_t value, unsigned flags) {                            \
    return value_in_turn(forward, stream, address, value, flags);                     \
  }                                                                                   \
  CUVMM_SCHEDULE(cuStreamWriteValue##bits, CUstream stream, CUdeviceptr address,      \
                 cuuint##bits##_t value, unsigned flags) {                            \
    return value_in_turn(forward, stream, address, value, flags);                     \
  }
CUVMM_SCHEDULE_VALUES(32)
CUVMM_SCHEDULE_VALUES(64)
#undef CUVMM_SCHEDULE_VALUES

CUVMM_SCHEDULE(cuStreamBatchMemOp, CUstream stream, unsigned count,
               CUstreamBatchMemOpParams* operations, unsigned flags) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  return make_in_turn(mode, mode.request(Call::cuStreamBatchMemOp), forward, stream, count,
                      operations, flags);
}
CUVMM_SCHEDULE(cuStreamBatchMemOp_v2, CUstream stream, unsigned count,
               CUstreamBatchMemOpParams* operations, unsigned flags) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  return make_in_turn(mode, mode.request(Call::cuStreamBatchMemOp_v2), forward, stream, count,
                      operations, flags);
}

}  // namespace cuvmm::hook
