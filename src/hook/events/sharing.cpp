// SPDX-License-Identifier: Apache-2.0
// Memory and events shared with other processes, and a program's queries about its own.
#include "hook/events/words.hpp"

namespace cuvmm::hook {
namespace {

constexpr std::uint16_t shared = trace_flag::shared;
constexpr std::uint16_t imported = trace_flag::imported;

TraceRecord import(const Called& called, CUdeviceptr* address) {
  return {.event = TraceEvent::Import, .flags = imported, .address = given(called, address)};
}

TraceRecord of_event(CUevent event, std::uint32_t taken) {
  return {.event = TraceEvent::EventShare, .detail = taken, .address = number(event)};
}

}  // namespace

CUVMM_EVENT(cuIpcGetMemHandle, CUipcMemHandle*, CUdeviceptr address) {
  return {.event = TraceEvent::Export, .flags = shared, .address = address};
}
CUVMM_EVENT(cuIpcOpenMemHandle, CUdeviceptr* address, CUipcMemHandle, unsigned) {
  return import(called, address);
}
CUVMM_EVENT(cuIpcOpenMemHandle_v2, CUdeviceptr* address, CUipcMemHandle, unsigned) {
  return import(called, address);
}
CUVMM_EVENT(cuIpcCloseMemHandle, CUdeviceptr address) {
  return {.event = TraceEvent::ImportEnd, .flags = imported, .address = address};
}
CUVMM_EVENT(cuIpcGetEventHandle, CUipcEventHandle*, CUevent event) {
  return of_event(event, 0);
}
CUVMM_EVENT(cuIpcOpenEventHandle, CUevent* event, CUipcEventHandle) {
  return of_event(given(called, event), 1);
}

CUVMM_EVENT(cuMemExportToShareableHandle, void*, CUmemGenericAllocationHandle chunk,
            CUmemAllocationHandleType, unsigned long long) {
  return {.event = TraceEvent::Export, .flags = shared, .other = chunk};
}
CUVMM_EVENT(cuMemImportFromShareableHandle, CUmemGenericAllocationHandle* chunk, void*,
            CUmemAllocationHandleType) {
  return {.event = TraceEvent::Import, .flags = imported, .other = given(called, chunk)};
}
CUVMM_EVENT(cuMemGetHandleForAddressRange, void*, CUdeviceptr address, size_t size,
            CUmemRangeHandleType, unsigned long long) {
  return {.event = TraceEvent::Export, .flags = shared, .address = address, .size = size};
}
CUVMM_EVENT(cuMulticastBindAddr, CUmemGenericAllocationHandle, size_t, CUdeviceptr address,
            size_t size, unsigned long long) {
  return call(called, address, size);
}
CUVMM_EVENT(cuMemPoolExportPointer, CUmemPoolPtrExportData*, CUdeviceptr address) {
  return {.event = TraceEvent::Export,
          .flags = shared | trace_flag::stream_ordered,
          .address = address};
}
CUVMM_EVENT(cuMemPoolImportPointer, CUdeviceptr* address, CUmemoryPool, CUmemPoolPtrExportData*) {
  TraceRecord event = import(called, address);
  event.flags |= trace_flag::stream_ordered;
  return event;
}

CUVMM_EVENT(cuMemRetainAllocationHandle, CUmemGenericAllocationHandle* chunk, void* address) {
  return {
      .event = TraceEvent::HandleRetain, .address = number(address), .other = given(called, chunk)};
}

CUVMM_EVENT(cuMemGetInfo_v2, size_t* free, size_t* total) {
  return {
      .event = TraceEvent::MemoryInfo, .size = given(called, free), .other = given(called, total)};
}
CUVMM_EVENT(cuMemGetAddressRange_v2, CUdeviceptr*, size_t* size, CUdeviceptr address) {
  return call(called, address, given(called, size));
}
CUVMM_EVENT(cuPointerGetAttribute, void*, CUpointer_attribute, CUdeviceptr address) {
  return call(called, address, 0);
}
CUVMM_EVENT(cuPointerGetAttributes, unsigned, CUpointer_attribute*, void**, CUdeviceptr address) {
  return call(called, address, 0);
}
CUVMM_EVENT(cuPointerSetAttribute, const void*, CUpointer_attribute, CUdeviceptr address) {
  return call(called, address, 0);
}
CUVMM_EVENT(cuMemAdvise, CUdeviceptr address, size_t size, CUmem_advise, CUdevice) {
  return call(called, address, size);
}
CUVMM_EVENT(cuMemAdvise_v2, CUdeviceptr address, size_t size, CUmem_advise, CUmemLocation) {
  return call(called, address, size);
}
CUVMM_EVENT(cuMemHostRegister, void* address, size_t size, unsigned) {
  return call(called, number(address), size);
}
CUVMM_EVENT(cuMemHostRegister_v2, void* address, size_t size, unsigned) {
  return call(called, number(address), size);
}
CUVMM_EVENT(cuMemHostUnregister, void* address) {
  return call(called, number(address), 0);
}

}  // namespace cuvmm::hook
