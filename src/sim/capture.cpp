// SPDX-License-Identifier: Apache-2.0
#include "sim/capture.hpp"

#include <atomic>

#include "sim/capture_mode.hpp"
#include "sim/capture_state.hpp"
#include "sim/context.hpp"
#include "sim/event.hpp"
#include "sim/graph_memory.hpp"
#include "sim/graph_work.hpp"
#include "sim/process.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {
namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

constexpr CUgraphEdgeData plain_edge{};

// Programs that never capture pay for a single load when they query events.
std::atomic<bool> any_event_captured{false};

CUresult broken(Capture& capture, CUresult error) {
  capture.invalidate();
  return error;
}

bool is_going_on(const Capture& capture) {
  return capture.is_valid() && !capture.has_ended();
}

// Whether a capture forbids this thread to make calls that may wait for work elsewhere.
bool forbids_unsafe_calls(const Capture& capture) {
  if (capture.is_of_this_thread() && capture.mode() != CU_STREAM_CAPTURE_MODE_RELAXED) return true;
  return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         capture.mode() == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

template <class Affected>
CUresult refuse_if(Affected&& affected, CUresult error) {
  if (!is_anything_captured()) return CUDA_SUCCESS;
  const Holding holding{graph_lock()};
  CUresult answer = CUDA_SUCCESS;
  for (const auto& capture : live_captures()) {
    if (affected(*capture)) answer = broken(*capture, error);
  }
  return answer;
}

// Adds a node for a captured stream.
CUresult add_node(Stream& stream, NodeWork work) {
  const auto capture = capture_of(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;  // it ended in the meantime
  if (!capture->is_valid()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (work.context.expired()) work.context = stream.context;
  capture->add(stream, std::move(work));
  return CUDA_SUCCESS;
}

NodeWork event_work(CUgraphNodeType type, const std::shared_ptr<Event>& event) {
  return {.operation = std::make_shared<Operation>(Operation{.type = type, .parameters = event})};
}

CUresult join_or_merge(Stream& stream, const CapturedRecord& record) {
  const auto of_stream = capture_of(stream);
  const auto& of_event = record.capture;
  if (!of_event->is_valid()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (of_stream == nullptr) {
    if (stream.kind == StreamKind::Legacy) {
      return broken(*of_event, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    of_event->join(stream);
  } else if (of_stream != of_event) {
    broken(*of_stream, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    return broken(*of_event, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  CapturedStream& last = of_event->of(stream);
  for (CUgraphNode node : record.nodes) last.add(node, plain_edge);
  return CUDA_SUCCESS;
}

}  // namespace

CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

bool is_captured(const Stream& stream) {
  if (!is_anything_captured()) return false;
  const Holding holding{graph_lock()};
  return capture_of(stream) != nullptr;
}

// An event still belongs to its capture after the capture has ended.
bool is_captured(const Event& event) {
  if (!any_event_captured.load()) return false;
  const Holding holding{graph_lock()};
  return event.captured.capture != nullptr;
}

CUresult add_to_capture(Stream& stream, Operation operation) {
  const Holding holding{graph_lock()};
  return add_node(stream, captured_work(std::move(operation)));
}

CUresult capture_record_event(Stream& stream, const std::shared_ptr<Event>& event,
                              EventScope scope) {
  const Holding holding{graph_lock()};
  if (scope == EventScope::External) {
    return add_node(stream, event_work(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
  }
  const auto capture = capture_of(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!capture->is_valid()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  any_event_captured.store(true);
  event->captured = {.capture = capture, .nodes = capture->of(stream).nodes};
  return CUDA_SUCCESS;
}

void forget_captured_record(Event& event) {
  if (!any_event_captured.load()) return;
  const Holding holding{graph_lock()};
  event.captured = {};
}

CUresult capture_wait_event(Stream& stream, const std::shared_ptr<Event>& event, EventScope scope) {
  const Holding holding{graph_lock()};
  if (scope == EventScope::External) {
    return add_node(stream, event_work(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
  }
  const auto capture = capture_of(stream);
  if (capture != nullptr && !capture->is_valid()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const CapturedRecord& record = event->captured;
  if (record.capture != nullptr) {
    if (!record.capture->has_ended()) return join_or_merge(stream, record);
    if (capture != nullptr) capture->invalidate();
    return CUDA_ERROR_INVALID_VALUE;  // measured: whether its capture succeeded does not matter
  }
  if (event->recording() == nullptr) return CUDA_SUCCESS;
  return broken(*capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
}

CUresult capture_allocation(Stream& stream, Size size, CUmemoryPool pool, CUdeviceptr* address) {
  const auto context = stream.context.lock();
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (pool != nullptr && Process::get().pools.find(pool) == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The pool's device determines the location; graphs have their own pool on it.
  Device& device = context->device();
  const auto memory = GraphMemory::create(device, size, {device.ordinal()});
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUDA_MEM_ALLOC_NODE_PARAMS shown{};
  shown.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  shown.poolProps.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.ordinal()};
  shown.bytesize = size;
  shown.dptr = memory->address;
  const Holding holding{graph_lock()};
  const CUresult added =
      add_node(stream, {.operation = std::make_shared<Operation>(
                            Operation{.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .parameters = shown}),
                        .memory = memory});
  if (added == CUDA_SUCCESS) *address = memory->address;
  return added;
}

CUresult capture_free(Stream& stream, CUdeviceptr address) {
  const auto memory = find_graph_memory(address);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Holding holding{graph_lock()};
  const auto capture = capture_of(stream);
  if (capture != nullptr && capture->graph()->frees(*memory)) return CUDA_ERROR_INVALID_VALUE;
  return add_node(stream, {.operation = std::make_shared<Operation>(Operation{
                               .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .parameters = address}),
                           .memory = memory});
}

CUresult refuse_unsafe_call() {
  if (thread_mode != CU_STREAM_CAPTURE_MODE_GLOBAL &&
      thread_mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
    return CUDA_SUCCESS;
  }
  return refuse_if([](const Capture& capture) { return forbids_unsafe_calls(capture); },
                   CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult refuse_captured_stream(Stream& stream) {
  if (!is_anything_captured()) return CUDA_SUCCESS;
  if (stream.kind == StreamKind::Legacy) {
    const auto context = stream.context.lock();
    return context == nullptr ? CUDA_SUCCESS : refuse_legacy_work(*context);
  }
  const Holding holding{graph_lock()};
  const auto capture = capture_of(stream);
  return capture == nullptr ? CUDA_SUCCESS
                            : broken(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult check_captured_event(const Event& event) {
  if (!any_event_captured.load()) return CUDA_SUCCESS;
  const Holding holding{graph_lock()};
  const auto& capture = event.captured.capture;
  if (capture == nullptr) return CUDA_SUCCESS;
  return is_going_on(*capture) ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_INVALID_VALUE;
}

CUresult refuse_captured_event(Event& event) {
  const CUresult answer = check_captured_event(event);
  if (answer == CUDA_SUCCESS) return answer;
  const Holding holding{graph_lock()};
  if (event.captured.capture != nullptr) event.captured.capture->invalidate();
  return answer;
}

CUresult refuse_context_wait(const Context& context) {
  return refuse_if([&](const Capture& capture) { return capture.touches(context, false); },
                   CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult refuse_legacy_work(const Context& context) {
  return refuse_if([&](const Capture& capture) { return capture.touches(context, true); },
                   CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void leave_capture(Stream& stream) {
  std::shared_ptr<Graph> lost;  // destroyed without the lock
  const Holding holding{graph_lock()};
  const auto capture = capture_of(stream);
  if (capture == nullptr) return;
  if (!capture->is_origin(stream)) return capture->forget(stream);
  // The capture can no longer be ended, as its origin stream is destroyed.
  const bool given = capture->is_into_given_graph();
  lost = capture->end();
  if (!given) lost->withdraw();
}

}  // namespace cuvmm::sim
