// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/context_life.hpp"
#include "sim/event.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

constexpr int highest_priority = -5;

CUresult create(CUstream* out, unsigned flags, int priority) {
  CUVMM_SIM_CONTEXT(context);
  if (out == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->flags = flags;
  stream->priority = std::clamp(priority, highest_priority, 0);
  stream->id = next_stream_id();
  context->add_stream(stream);
  *out = Process::get().streams.add(std::move(stream));
  return CUDA_SUCCESS;
}

CUresult destroy(CUstream handle) {
  const auto stream = Process::get().streams.remove(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  leave_capture(*stream);
  // The legacy stream and the context still wait for its pending work.
  if (const auto context = stream->context.lock()) context->retire_stream(stream);
  return CUDA_SUCCESS;
}

// The stream for a query, or the error for the call.
struct AskedStream {
  std::shared_ptr<Stream> stream;
  CUresult answer = CUDA_SUCCESS;
};
AskedStream asked_stream(CUstream handle) {
  const auto current = current_context();
  if (current.answer != CUDA_SUCCESS) return {nullptr, current.answer};
  auto stream = find_stream(current.context, handle);
  const CUresult answer = stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  return {std::move(stream), answer};
}

template <class Value, class Read>
CUresult tell(CUstream handle, Value* value, Read&& read) {
  const AskedStream asked = asked_stream(handle);
  if (asked.answer != CUDA_SUCCESS) return asked.answer;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = read(*asked.stream);
  return CUDA_SUCCESS;
}

CUcontext context_of(const Stream& stream) {
  const auto context = stream.context.lock();
  return context == nullptr ? nullptr : context->handle();
}

}  // namespace

CUVMM_SIM(cuStreamCreate)(CUstream* stream, unsigned flags) {
  return create(stream, flags, 0);
}
CUVMM_SIM(cuStreamCreateWithPriority)(CUstream* stream, unsigned flags, int priority) {
  return create(stream, flags, priority);
}
CUVMM_SIM(cuStreamDestroy)(CUstream stream) {
  return destroy(stream);
}
CUVMM_SIM(cuStreamDestroy_v2)(CUstream stream) {
  return destroy(stream);
}

CUVMM_SIM(cuStreamSynchronize)(CUstream handle) {
  const AskedStream asked = asked_stream(handle);
  if (asked.answer != CUDA_SUCCESS) return asked.answer;
  if (const CUresult refused = refuse_captured_stream(*asked.stream); refused != CUDA_SUCCESS) {
    return refused;
  }
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  const std::vector<Point> work = work_of(*asked.stream);
  for (const Point& point : work) Queue::wait_for(point);
  const auto context = asked.stream->context.lock();
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  note_synchronized(*context, work);
  return context->sticky_error();
}

CUVMM_SIM(cuStreamQuery)(CUstream handle) {
  const AskedStream asked = asked_stream(handle);
  if (asked.answer != CUDA_SUCCESS) return asked.answer;
  if (const CUresult refused = refuse_captured_stream(*asked.stream); refused != CUDA_SUCCESS) {
    return refused;
  }
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  const auto context = asked.stream->context.lock();
  const bool is_done = is_stream_done(*asked.stream);
  const CUresult sticky = context == nullptr ? CUDA_SUCCESS : context->sticky_error();
  if (sticky != CUDA_SUCCESS) return sticky;
  return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUVMM_SIM(cuStreamWaitEvent)(CUstream handle, CUevent event_handle, unsigned flags) {
  const AskedStream asked = asked_stream(handle);
  if (asked.answer != CUDA_SUCCESS) return asked.answer;
  const auto event = Process::get().events.find(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  const EventScope scope =
      flags == CU_EVENT_WAIT_EXTERNAL ? EventScope::External : EventScope::Capture;
  if (is_captured(*asked.stream) || is_captured(*event)) {
    return capture_wait_event(*asked.stream, event, scope);
  }
  if (scope == EventScope::External) return CUDA_ERROR_ILLEGAL_STATE;
  if (asked.stream->kind == StreamKind::Legacy) {
    const CUresult refused = refuse_captured_stream(*asked.stream);
    if (refused != CUDA_SUCCESS) return refused;
  }
  order_after_event(asked.stream, *event);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuStreamGetFlags)(CUstream stream, unsigned* flags) {
  const AskedStream of = asked_stream(stream);
  if (of.answer == CUDA_SUCCESS && is_captured(*of.stream))
    return refuse_captured_stream(*of.stream);
  return tell(stream, flags, [](const Stream& asked) { return asked.flags; });
}
CUVMM_SIM(cuStreamGetPriority)(CUstream stream, int* priority) {
  return tell(stream, priority, [](const Stream& asked) { return asked.priority; });
}
CUVMM_SIM(cuStreamGetId)(CUstream stream, unsigned long long* id) {
  return tell(stream, id, [](const Stream& asked) { return asked.id; });
}
CUVMM_SIM(cuStreamGetCtx)(CUstream stream, CUcontext* context) {
  return tell(stream, context, [](const Stream& asked) { return context_of(asked); });
}
CUVMM_SIM(cuStreamGetCtx_v2)(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  if (green != nullptr) *green = nullptr;
  return tell(stream, context, [](const Stream& asked) { return context_of(asked); });
}
CUVMM_SIM(cuStreamGetDevice)(CUstream stream, CUdevice* device) {
  return tell(stream, device, [](const Stream& asked) {
    const auto context = asked.context.lock();
    return context == nullptr ? 0 : context->device().ordinal();
  });
}

CUVMM_SIM(cuStreamCopyAttributes)(CUstream to, CUstream from) {
  const AskedStream target = asked_stream(to);
  return target.answer != CUDA_SUCCESS ? target.answer : asked_stream(from).answer;
}

}  // namespace cuvmm::sim
