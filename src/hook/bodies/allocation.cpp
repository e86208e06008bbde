// SPDX-License-Identifier: Apache-2.0
// Memory that the program takes and gives back, in every way that it can.
#include "hook/record.hpp"

namespace cuvmm::hook {
namespace {

// What was asked for, and where the answer to it lies once it is there.
struct Asked {
  Size size = 0;
  std::uint64_t stream = 0;
  std::uint16_t flags = trace_flag::native;
};

template <Call call>
CUresult record_allocation(const Forward<call>& forward, CUresult answer, const Asked& asked,
                           const void* given) {
  if (!trace_is_on()) return answer;
  TraceRecord event{.event = TraceEvent::AllocateFailed,
                    .flags = asked.flags,
                    .size = asked.size,
                    .stream = asked.stream};
  if (answer == CUDA_SUCCESS && given != nullptr) {
    event.event = TraceEvent::Allocate;
    event.address = *static_cast<const std::uint64_t*>(given);
    event.other = asked.size;
  }
  record(forward, answer, event);
  return answer;
}

// The time is taken before the memory can become somebody else's.
template <Call call, class Free>
CUresult record_free(const Forward<call>& forward, std::uint64_t address, const Asked& asked,
                     Free&& free) {
  if (!trace_is_on()) return free();
  const std::uint64_t began = now_ns();
  const CUresult answer = free();
  record(forward, answer,
         {.time = began,
          .event = answer == CUDA_SUCCESS ? TraceEvent::Free : TraceEvent::FreeFailed,
          .flags = asked.flags,
          .address = address,
          .stream = asked.stream});
  return answer;
}

constexpr std::uint16_t native = trace_flag::native;
constexpr std::uint16_t host = trace_flag::native | trace_flag::on_host;
constexpr std::uint16_t ordered = trace_flag::native | trace_flag::stream_ordered;

}  // namespace

CUVMM_HOOK(cuMemAlloc_v2, CUdeviceptr* address, size_t size) {
  return record_allocation(forward, forward(address, size), {.size = size}, address);
}

CUVMM_HOOK(cuMemAllocPitch_v2, CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
           unsigned element) {
  const CUresult answer = forward(address, pitch, width, height, element);
  const Size size = answer == CUDA_SUCCESS && pitch != nullptr ? *pitch * height : width * height;
  return record_allocation(forward, answer, {.size = size}, address);
}

CUVMM_HOOK(cuMemAllocManaged, CUdeviceptr* address, size_t size, unsigned flags) {
  return record_allocation(forward, forward(address, size, flags),
                           {.size = size, .flags = native | trace_flag::managed}, address);
}

CUVMM_HOOK(cuMemAllocHost_v2, void** address, size_t size) {
  return record_allocation(forward, forward(address, size), {.size = size, .flags = host}, address);
}

CUVMM_HOOK(cuMemHostAlloc, void** address, size_t size, unsigned flags) {
  return record_allocation(forward, forward(address, size, flags), {.size = size, .flags = host},
                           address);
}

CUVMM_HOOK(cuMemAllocAsync, CUdeviceptr* address, size_t size, CUstream stream) {
  const Asked asked{
      .size = size, .stream = stream_number(stream, forward.flavour()), .flags = ordered};
  return record_allocation(forward, forward(address, size, stream), asked, address);
}

CUVMM_HOOK(cuMemAllocFromPoolAsync, CUdeviceptr* address, size_t size, CUmemoryPool pool,
           CUstream stream) {
  const Asked asked{
      .size = size, .stream = stream_number(stream, forward.flavour()), .flags = ordered};
  return record_allocation(forward, forward(address, size, pool, stream), asked, address);
}

CUVMM_HOOK(cuMemFree_v2, CUdeviceptr address) {
  return record_free(forward, address, {}, [&] { return forward(address); });
}

CUVMM_HOOK(cuMemFreeHost, void* address) {
  return record_free(forward, reinterpret_cast<std::uint64_t>(address), {.flags = host},
                     [&] { return forward(address); });
}

CUVMM_HOOK(cuMemFreeAsync, CUdeviceptr address, CUstream stream) {
  const Asked asked{.stream = stream_number(stream, forward.flavour()), .flags = ordered};
  return record_free(forward, address, asked, [&] { return forward(address, stream); });
}

}  // namespace cuvmm::hook
