// SPDX-License-Identifier: Apache-2.0
// The program's own use of virtual memory management. A refused call changed nothing and is
// recorded as a plain call with its answer; only a chunk for which there was no memory keeps its
// event.
#include "hook/events/words.hpp"

namespace cuvmm::hook {
namespace {

constexpr std::uint16_t native = trace_flag::native;

TraceRecord if_granted(const Called& called, TraceRecord event) {
  if (!called.granted()) return call(called, event.address, event.size);
  event.flags |= native;
  return event;
}

}  // namespace

CUVMM_EVENT(cuMemAddressReserve, CUdeviceptr* address, size_t size, size_t, CUdeviceptr,
            unsigned long long) {
  return if_granted(
      called, {.event = TraceEvent::Reserve, .address = given(called, address), .size = size});
}
CUVMM_EVENT(cuMemAddressFree, CUdeviceptr address, size_t size) {
  return if_granted(called, {.event = TraceEvent::Unreserve, .address = address, .size = size});
}
CUVMM_EVENT(cuMemCreate, CUmemGenericAllocationHandle* chunk, size_t size,
            const CUmemAllocationProp* properties, unsigned long long) {
  TraceRecord event{
      .event = TraceEvent::Create, .flags = native, .size = size, .other = given(called, chunk)};
  const bool was_refused_memory =
      called.answer == CUDA_ERROR_OUT_OF_MEMORY && properties != nullptr;
  if (!called.granted() && !was_refused_memory) return call(called, 0, size);
  const Serving* const serving = Engine::get()->serving();
  const bool is_spilled = serving != nullptr && serving->program_chunks.is_far(event.other);
  if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !is_spilled) {
    event.device = static_cast<std::int16_t>(properties->location.id);
    event.detail = static_cast<std::uint32_t>(properties->location.id);
  } else {
    event.flags |= trace_flag::on_host;
  }
  return event;
}
CUVMM_EVENT(cuMemRelease, CUmemGenericAllocationHandle chunk) {
  return if_granted(called, {.event = TraceEvent::Release, .other = chunk});
}
CUVMM_EVENT(cuMemMap, CUdeviceptr address, size_t size, size_t, CUmemGenericAllocationHandle chunk,
            unsigned long long) {
  return if_granted(
      called,
      {.event = TraceEvent::Map, .detail = 1, .address = address, .size = size, .other = chunk});
}
CUVMM_EVENT(cuMemUnmap, CUdeviceptr address, size_t size) {
  return if_granted(called, {.event = TraceEvent::Unmap, .address = address, .size = size});
}
CUVMM_EVENT(cuMemSetAccess, CUdeviceptr address, size_t size, const CUmemAccessDesc*,
            size_t count) {
  return if_granted(called, {.event = TraceEvent::Access,
                             .detail = static_cast<std::uint32_t>(count),
                             .address = address,
                             .size = size});
}

}  // namespace cuvmm::hook
