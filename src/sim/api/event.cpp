// SPDX-License-Identifier: Apache-2.0
#include "sim/event.hpp"

#include "base/clock.hpp"
#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context_life.hpp"
#include "sim/process.hpp"
#include "sim/shared_record.hpp"

namespace cuvmm::sim {
namespace {

constexpr unsigned flags_of_events =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

struct AskedEvent {
  std::shared_ptr<Event> event;
  std::shared_ptr<Context> context;
  CUresult answer = CUDA_SUCCESS;
};

// Events may be queried from any context; errors are those of the event's own context.
AskedEvent asked_event(CUevent handle, CUresult (*refuse)(Event&) = &refuse_captured_event) {
  auto event = Process::get().events.find(handle);
  if (event == nullptr) return {nullptr, nullptr, CUDA_ERROR_INVALID_HANDLE};
  auto context = event->context.lock();
  if (context == nullptr) return {nullptr, nullptr, CUDA_ERROR_CONTEXT_IS_DESTROYED};
  const CUresult sticky = context->sticky_error();
  if (sticky != CUDA_SUCCESS) return {nullptr, nullptr, sticky};
  const CUresult refused = refuse(*event);
  return {std::move(event), std::move(context), refused};
}

CUresult record(CUevent event_handle, CUstream stream_handle, unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  const auto event = Process::get().events.find(event_handle);
  const auto stream = find_stream(context, stream_handle);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  const EventScope scope =
      flags == CU_EVENT_RECORD_EXTERNAL ? EventScope::External : EventScope::Capture;
  if (is_captured(*stream)) return capture_record_event(*stream, event, scope);
  if (scope == EventScope::External) return CUDA_ERROR_ILLEGAL_STATE;
  const auto of_event = event->context.lock();
  const auto of_stream = stream->context.lock();
  if (of_event != of_stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->kind == StreamKind::Legacy) {
    const CUresult refused = refuse_legacy_work(*of_stream);
    if (refused != CUDA_SUCCESS) return refused;
  }
  forget_captured_record(*event);
  record_event(*event, stream);
  return CUDA_SUCCESS;
}

CUresult elapsed(float* milliseconds, CUevent first, CUevent second) {
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Invalidates no capture (measured).
  const auto check = [](Event& event) { return check_captured_event(event); };
  const AskedEvent begin = asked_event(first, check);
  if (begin.answer != CUDA_SUCCESS) return begin.answer;
  const AskedEvent end = asked_event(second, check);
  if (end.answer != CUDA_SUCCESS) return end.answer;
  if (((begin.event->flags | end.event->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const auto from = begin.event->recording();
  const auto to = end.event->recording();
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool both = Queue::is_reached(from->point) && Queue::is_reached(to->point);
  if (!both) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(to->reached_ns.load() - from->reached_ns.load()) / 1e6F;
  return CUDA_SUCCESS;
}

}  // namespace

void record_event(Event& event, const std::shared_ptr<Stream>& stream) {
  auto recording = std::make_shared<Recording>();
  const auto shared = event.shared;
  const std::uint64_t number = shared != nullptr ? shared->begin() : 0;
  Operation reach;
  reach.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  reach.run = [recording, shared, number](Context&) {
    recording->reached_ns = static_cast<std::int64_t>(now_ns());
    if (shared != nullptr) shared->reach(number);
  };
  recording->point = submit_record(stream, std::move(reach));
  // Another process cannot make held-back work of this process run.
  if (shared != nullptr) recording->point.queue->allow(recording->point.number);
  event.replace(std::move(recording));
}

void order_after_event(const std::shared_ptr<Stream>& stream, const Event& event) {
  if (const auto recording = event.recording()) {
    order_after(*stream, recording->point);
    // The wait counts as work of this stream, so that the legacy stream and synchronizing calls see
    // it.
    submit_now(stream, Operation{});
  }
  if (event.shared == nullptr) return;
  Operation wait;
  wait.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  wait.duration = Duration::Long;
  wait.run = [shared = event.shared, number = event.shared->last()](Context&) {
    shared->wait_for(number);
  };
  submit_now(stream, std::move(wait));
}

CUVMM_SIM(cuEventCreate)(CUevent* out, unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  if (out == nullptr || (flags & ~flags_of_events) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool between_processes = (flags & CU_EVENT_INTERPROCESS) != 0;
  if (between_processes && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_shared<Event>();
  event->context = context;
  event->flags = flags;
  if (between_processes) {
    event->shared = SharedRecord::create();
    if (event->shared == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Process& process = Process::get();
  const CUevent added = process.events.add(std::move(event));
  if (process.contexts.find(context->handle()) == nullptr) {
    process.events.remove(added);  // another thread destroyed the context
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  *out = added;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuEventDestroy_v2)(CUevent event) {
  return Process::get().events.remove(event) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
CUVMM_SIM(cuEventDestroy)(CUevent event) {
  return sim_cuEventDestroy_v2(event);
}

CUVMM_SIM(cuEventRecord)(CUevent event, CUstream stream) {
  return record(event, stream, 0);
}
CUVMM_SIM(cuEventRecordWithFlags)(CUevent event, CUstream stream, unsigned flags) {
  return record(event, stream, flags);
}

CUVMM_SIM(cuEventQuery)(CUevent handle) {
  const AskedEvent asked = asked_event(handle);
  if (asked.answer != CUDA_SUCCESS) return asked.answer;
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  const auto recording = asked.event->recording();
  if (recording != nullptr && !Queue::is_reached(recording->point)) return CUDA_ERROR_NOT_READY;
  const auto& shared = asked.event->shared;
  const bool is_done = shared == nullptr || shared->is_reached(shared->last());
  return is_done ? asked.context->sticky_error() : CUDA_ERROR_NOT_READY;
}

CUVMM_SIM(cuEventSynchronize)(CUevent handle) {
  const AskedEvent asked = asked_event(handle);
  if (asked.answer != CUDA_SUCCESS) return asked.answer;
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  const auto recording = asked.event->recording();
  if (recording != nullptr) Queue::wait_for(recording->point);
  if (const auto& shared = asked.event->shared) shared->wait_for(shared->last());
  if (recording != nullptr) note_synchronized(*asked.context, {recording->point});
  return asked.context->sticky_error();
}

CUVMM_SIM(cuEventElapsedTime)(float* milliseconds, CUevent first, CUevent second) {
  return elapsed(milliseconds, first, second);
}
CUVMM_SIM(cuEventElapsedTime_v2)(float* milliseconds, CUevent first, CUevent second) {
  return elapsed(milliseconds, first, second);
}

}  // namespace cuvmm::sim
