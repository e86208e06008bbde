// SPDX-License-Identifier: Apache-2.0
// The program's own use of virtual memory management: forwarded as it is, and recorded.
#include "hook/record.hpp"

namespace cuvmm::hook {
namespace {

constexpr std::uint16_t native = trace_flag::native;

// Only what the driver granted is an event of memory.
template <Call call>
CUresult record_granted(const Forward<call>& forward, CUresult answer, TraceRecord event) {
  event.flags |= native;
  if (answer == CUDA_SUCCESS) record(forward, answer, event);
  return answer;
}

}  // namespace

CUVMM_HOOK(cuMemAddressReserve, CUdeviceptr* address, size_t size, size_t alignment,
           CUdeviceptr hint, unsigned long long flags) {
  const CUresult answer = forward(address, size, alignment, hint, flags);
  const CUdeviceptr given = answer == CUDA_SUCCESS ? *address : 0;
  return record_granted(forward, answer,
                        {.event = TraceEvent::Reserve, .address = given, .size = size});
}

CUVMM_HOOK(cuMemAddressFree, CUdeviceptr address, size_t size) {
  const std::uint64_t began = trace_is_on() ? now_ns() : 0;
  return record_granted(
      forward, forward(address, size),
      {.time = began, .event = TraceEvent::Unreserve, .address = address, .size = size});
}

CUVMM_HOOK(cuMemCreate, CUmemGenericAllocationHandle* handle, size_t size,
           const CUmemAllocationProp* properties, unsigned long long flags) {
  const CUresult answer = forward(handle, size, properties, flags);
  const std::uint64_t chunk = answer == CUDA_SUCCESS ? *handle : 0;
  return record_granted(forward, answer,
                        {.event = TraceEvent::Create, .size = size, .other = chunk});
}

CUVMM_HOOK(cuMemRelease, CUmemGenericAllocationHandle handle) {
  const std::uint64_t began = trace_is_on() ? now_ns() : 0;
  return record_granted(forward, forward(handle),
                        {.time = began, .event = TraceEvent::Release, .other = handle});
}

CUVMM_HOOK(cuMemMap, CUdeviceptr address, size_t size, size_t offset,
           CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return record_granted(
      forward, forward(address, size, offset, handle, flags),
      {.event = TraceEvent::Map, .detail = 1, .address = address, .size = size, .other = handle});
}

CUVMM_HOOK(cuMemUnmap, CUdeviceptr address, size_t size) {
  const std::uint64_t began = trace_is_on() ? now_ns() : 0;
  return record_granted(
      forward, forward(address, size),
      {.time = began, .event = TraceEvent::Unmap, .address = address, .size = size});
}

}  // namespace cuvmm::hook
