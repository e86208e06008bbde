// SPDX-License-Identifier: Apache-2.0
// The creation and destruction of contexts, streams, events and pools, and access rights.
#include "hook/events/words.hpp"
#include "hook/whereabouts.hpp"

namespace cuvmm::hook {
namespace {

enum class Kind : std::uint32_t { ItsOwn = 0, Green = 1 };

std::int16_t ordinal(CUdevice device) {
  return static_cast<std::int16_t>(device);
}

TraceRecord context_create(const Called& called, CUcontext* context, CUdevice device) {
  forget_context(given(called, context));
  return {.event = TraceEvent::ContextCreate,
          .device = ordinal(device),
          .address = number(given(called, context))};
}

TraceRecord context_destroy(const Called& called, CUcontext context) {
  TraceRecord event{.event = TraceEvent::ContextDestroy, .address = number(context)};
  if (!called.granted()) return event;
  event.context = number_of_context(context);
  forget_context(context);
  return event;
}

TraceRecord of_primary(TraceEvent event, CUdevice device) {
  return {.event = event, .device = ordinal(device)};
}

TraceRecord stream_create(const Called& called, CUstream* stream, unsigned flags, int priority) {
  const std::uint64_t handle = number(given(called, stream));
  return {.event = TraceEvent::StreamCreate,
          .detail = flags,
          .address = handle,
          .stream = handle,
          .other = static_cast<std::uint64_t>(priority)};
}

TraceRecord stream_destroy(CUstream stream) {
  return {.event = TraceEvent::StreamDestroy, .address = number(stream), .stream = number(stream)};
}

TraceRecord of_event(TraceEvent what, CUevent event, std::uint32_t detail = 0) {
  return {.event = what, .detail = detail, .address = number(event)};
}

TraceRecord of_pool(TraceEvent what, CUmemoryPool pool) {
  return {.event = what, .address = number(pool)};
}

}  // namespace

CUVMM_EVENT(cuCtxCreate, CUcontext* context, unsigned, CUdevice device) {
  return context_create(called, context, device);
}
CUVMM_EVENT(cuCtxCreate_v2, CUcontext* context, unsigned, CUdevice device) {
  return context_create(called, context, device);
}
CUVMM_EVENT(cuCtxCreate_v3, CUcontext* context, CUexecAffinityParam*, int, unsigned,
            CUdevice device) {
  return context_create(called, context, device);
}
CUVMM_EVENT(cuCtxCreate_v4, CUcontext* context, CUctxCreateParams*, unsigned, CUdevice device) {
  return context_create(called, context, device);
}
CUVMM_EVENT(cuCtxDestroy, CUcontext context) {
  return context_destroy(called, context);
}
CUVMM_EVENT(cuCtxDestroy_v2, CUcontext context) {
  return context_destroy(called, context);
}
CUVMM_EVENT(cuCtxDetach, CUcontext context) {
  return context_destroy(called, context);
}
CUVMM_EVENT(cuGreenCtxCreate, CUgreenCtx* context, CUdevResourceDesc, CUdevice device, unsigned) {
  return {.event = TraceEvent::ContextCreate,
          .device = ordinal(device),
          .detail = static_cast<std::uint32_t>(Kind::Green),
          .address = number(given(called, context))};
}
CUVMM_EVENT(cuGreenCtxDestroy, CUgreenCtx context) {
  return {.event = TraceEvent::ContextDestroy,
          .detail = static_cast<std::uint32_t>(Kind::Green),
          .address = number(context)};
}

CUVMM_EVENT(cuDevicePrimaryCtxRetain, CUcontext* context, CUdevice device) {
  TraceRecord event = of_primary(TraceEvent::PrimaryRetain, device);
  event.address = number(given(called, context));
  event.context = number_of_context(given(called, context));
  return event;
}
CUVMM_EVENT(cuDevicePrimaryCtxRelease, CUdevice device) {
  return of_primary(TraceEvent::PrimaryRelease, device);
}
CUVMM_EVENT(cuDevicePrimaryCtxRelease_v2, CUdevice device) {
  return of_primary(TraceEvent::PrimaryRelease, device);
}
CUVMM_EVENT(cuDevicePrimaryCtxReset, CUdevice device) {
  return of_primary(TraceEvent::PrimaryReset, device);
}
CUVMM_EVENT(cuDevicePrimaryCtxReset_v2, CUdevice device) {
  return of_primary(TraceEvent::PrimaryReset, device);
}

CUVMM_EVENT(cuCtxEnablePeerAccess, CUcontext peer, unsigned) {
  return {.event = TraceEvent::PeerAccess, .detail = 1, .address = number(peer)};
}
CUVMM_EVENT(cuCtxDisablePeerAccess, CUcontext peer) {
  return {.event = TraceEvent::PeerAccess, .detail = 0, .address = number(peer)};
}

CUVMM_EVENT(cuStreamCreate, CUstream* stream, unsigned flags) {
  return stream_create(called, stream, flags, 0);
}
CUVMM_EVENT(cuStreamCreateWithPriority, CUstream* stream, unsigned flags, int priority) {
  return stream_create(called, stream, flags, priority);
}
CUVMM_EVENT(cuGreenCtxStreamCreate, CUstream* stream, CUgreenCtx, unsigned flags, int priority) {
  return stream_create(called, stream, flags, priority);
}
CUVMM_EVENT(cuStreamDestroy, CUstream stream) {
  return stream_destroy(stream);
}
CUVMM_EVENT(cuStreamDestroy_v2, CUstream stream) {
  return stream_destroy(stream);
}

CUVMM_EVENT(cuEventCreate, CUevent* event, unsigned flags) {
  return of_event(TraceEvent::EventCreate, given(called, event), flags);
}
CUVMM_EVENT(cuEventDestroy, CUevent event) {
  return of_event(TraceEvent::EventDestroy, event);
}
CUVMM_EVENT(cuEventDestroy_v2, CUevent event) {
  return of_event(TraceEvent::EventDestroy, event);
}

CUVMM_EVENT(cuMemPoolCreate, CUmemoryPool* pool, const CUmemPoolProps*) {
  return of_pool(TraceEvent::PoolCreate, given(called, pool));
}
CUVMM_EVENT(cuMemPoolDestroy, CUmemoryPool pool) {
  return of_pool(TraceEvent::PoolDestroy, pool);
}
CUVMM_EVENT(cuMemPoolTrimTo, CUmemoryPool pool, size_t keep) {
  TraceRecord event = of_pool(TraceEvent::PoolTrim, pool);
  event.other = keep;
  return event;
}
// Attributes up to the reuse flags are ints; all others are 64-bit.
CUVMM_EVENT(cuMemPoolSetAttribute, CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  TraceRecord event = of_pool(TraceEvent::PoolChange, pool);
  event.other = static_cast<std::uint64_t>(attribute);
  const bool is_switch = attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
  event.size = is_switch ? static_cast<std::uint64_t>(given(called, static_cast<int*>(value)))
                         : given(called, static_cast<cuuint64_t*>(value));
  return event;
}
CUVMM_EVENT(cuMemPoolSetAccess, CUmemoryPool pool, const CUmemAccessDesc*, size_t count) {
  TraceRecord event = of_pool(TraceEvent::PoolAccess, pool);
  event.detail = static_cast<std::uint32_t>(count);
  return event;
}

}  // namespace cuvmm::hook
