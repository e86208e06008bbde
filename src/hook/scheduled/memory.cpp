// SPDX-License-Identifier: Apache-2.0
// Memory that is allocated and freed. Allocations are answered on the calling thread, since no
// queued work can know of the new memory yet. Frees keep their place in the stream, or wait for
// everything queued.
#include <iterator>

#include "hook/scheduled/dispatch_mode.hpp"
#include "hook/scheduled/memory_of_call.hpp"
#include "hook/scheduled/queued_calls.hpp"

namespace cuvmm::hook {
namespace {

// If memory lacks while frees are queued, retries after issuing everything.
template <Call call, class... Arguments>
CUresult allocate(const Forward<call>& forward, Arguments... arguments) {
  for (bool may_retry = queued_frees.any();; may_retry = false) {
    const UnreportedRefusals unreported{may_retry};
    const CUresult answer = make_now(forward, arguments...);
    if (answer != CUDA_ERROR_OUT_OF_MEMORY || !may_retry) return answer;
    forward.engine().scheduling().parts()->scheduler.settle_all();
  }
}

// True for a live allocation that can be freed in the order of a stream. False for an address at
// which cuvmm only served one earlier.
bool is_start_of_memory(Engine& engine, CUdeviceptr address) {
  if (const auto ours = served_at(engine, address)) return ours->address == address;
  CUdeviceptr begin = 0;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  unsigned type = 0;
  unsigned is_managed = 0;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                 CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED};
  void* answers[] = {&begin, &context, &pool, &type, &is_managed};
  return address != 0 &&
         engine.driver().cuPointerGetAttributes(std::size(asked), asked, answers, address) ==
             CUDA_SUCCESS &&
         begin == address && type == CU_MEMORYTYPE_DEVICE && is_managed == 0 &&
         (context != nullptr || pool != nullptr);
}

// An allocation may make its stream wait for other users of the memory. Work that was queued
// earlier, and the mark behind that work, must be issued first, or they would wait as well. The
// driver must also have seen the frees and waits queued earlier, which make memory available.
template <Call call>
void settle_before_allocation(const Forward<call>& forward, CUstream stream) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  if (mode.stream == nullptr) return;
  mode.scheduler().settle_before_work_on(*mode.stream);
  if (mode.stream->kind != StreamKind::NonBlocking) mode.scheduler().wait_for_marks();
}

}  // namespace

CUVMM_SCHEDULE(cuMemAlloc_v2, CUdeviceptr* address, size_t size) {
  return allocate(forward, address, size);
}
CUVMM_SCHEDULE(cuMemAllocPitch_v2, CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
               unsigned element) {
  return allocate(forward, address, pitch, width, height, element);
}
CUVMM_SCHEDULE(cuMemAllocAsync, CUdeviceptr* address, size_t size, CUstream stream) {
  settle_before_allocation(forward, stream);
  return allocate(forward, address, size, stream);
}
CUVMM_SCHEDULE(cuMemAllocFromPoolAsync, CUdeviceptr* address, size_t size, CUmemoryPool pool,
               CUstream stream) {
  settle_before_allocation(forward, stream);
  return allocate(forward, address, size, pool, stream);
}

CUVMM_SCHEDULE(cuMemFree_v2, CUdeviceptr address) {
  Engine& engine = forward.engine();
  Scheduler& scheduler = engine.scheduling().parts()->scheduler;
  const auto ours = served_at(engine, address);
  const CUcontext owner = ours ? owner_of(*ours) : nullptr;
  if (owner != nullptr) {
    scheduler.settle_context(owner);
  } else {
    scheduler.settle_all();
  }
  const CUresult answer = make_now(forward, address);
  // Of cuvmm's own wait for the context.
  if (answer != CUDA_SUCCESS) note_refusal(engine, answer, owner);
  return answer;
}

CUVMM_SCHEDULE(cuMemFreeAsync, CUdeviceptr address, CUstream stream) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  const Request request = mode.request(Call::cuMemFreeAsync);
  if (!mode.is_open_to_queue || !is_start_of_memory(forward.engine(), address)) {
    return make_in_turn(mode, request, forward, address, stream);
  }
  QueuedFrees& frees = mode.parts->queued_frees;
  // A double free, or a free after a graph allocated the address again: the driver tells which.
  if (!frees.begin(address)) return make_in_turn(mode, request, forward, address, stream);
  const Taken taken = mode.scheduler().submit(
      *mode.client, request,
      [forward, address, stream, &frees, is_queued = QueuedCalls::One{queued_frees}] {
        const CUresult answer = make_now(forward, address, stream);
        frees.end(address);
        return answer;
      });
  if (taken == Taken::Yes) return CUDA_SUCCESS;
  frees.end(address);
  return make_directly(mode, {}, forward, address, stream);
}

}  // namespace cuvmm::hook
