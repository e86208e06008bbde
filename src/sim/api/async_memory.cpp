// SPDX-License-Identifier: Apache-2.0
#include "sim/blocking.hpp"
#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/graph_memory.hpp"
#include "sim/pool.hpp"
#include "sim/pool_sharing.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

// Returns an error if captures of other streams forbid the use of this stream, which is not
// captured itself. For stream-ordered memory this applies to every stream (measured).
CUresult refuse_by_captures(const Stream& stream) {
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  if (stream.kind != StreamKind::Legacy) return CUDA_SUCCESS;
  const auto context = stream.context.lock();
  return context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : refuse_legacy_work(*context);
}

// Returns the stream device's current pool if `handle` is nullptr.
std::shared_ptr<Pool> pool_for(const Stream& stream, CUmemoryPool handle) {
  if (handle != nullptr) return Process::get().pools.find(handle);
  const auto context = stream.context.lock();
  return context == nullptr ? nullptr : current_pool_of(context->device());
}

// Submits an allocation or a free, which are ordinary work of the stream (measured): they follow
// the legacy stream's rules and wait for events. Returns the position of that work. If there is
// nothing to wait for outside the stream, that position is the end of the stream's work.
Point submit_memory_operation(const std::shared_ptr<Stream>& stream) {
  const auto context = stream->context.lock();
  if (context == nullptr) return {};
  if (stream->kind != StreamKind::Legacy) {
    const Holding holding{context->submission_lock()};
    const Stream& legacy = *context->legacy_stream();
    const bool waits_for_legacy = stream->is_blocking() && !legacy.queue->is_idle();
    if (stream->next_after.empty() && !waits_for_legacy) return stream->queue->last();
  }
  return submit_now(stream, {});
}

CUresult allocate(CUdeviceptr* address, Size size, CUmemoryPool handle, CUstream stream_handle) {
  std::shared_ptr<Stream> stream;
  const CUresult found = find_stream_of_any_context(stream_handle, &stream);
  if (found != CUDA_SUCCESS) return found;
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto pool = pool_for(*stream, handle);
  if (pool == nullptr || pool->is_imported()) return CUDA_ERROR_INVALID_VALUE;
  if (size == 0) {
    *address = 0;  // measured: size 0 is no error here
    return CUDA_SUCCESS;
  }
  if (is_captured(*stream)) {
    if (pool->properties().handle_types != 0) return CUDA_ERROR_NOT_SUPPORTED;  // measured
    return capture_allocation(*stream, size, handle, address);
  }
  if (const CUresult refused = refuse_by_captures(*stream); refused != CUDA_SUCCESS) return refused;
  CUresult answer = pool->allocate(stream, size, address);
  // The device's current pool has just been destroyed, so it has another one.
  while (answer == CUDA_ERROR_INVALID_VALUE && handle == nullptr && pool->is_retired()) {
    pool = pool_for(*stream, handle);
    if (pool == nullptr) return answer;
    answer = pool->allocate(stream, size, address);
  }
  if (answer == CUDA_SUCCESS) submit_memory_operation(stream);
  return answer;
}

// Runs `action` in stream order.
CUresult in_order(const std::shared_ptr<Stream>& stream, std::function<void()> action) {
  Operation operation;
  operation.run = [action = std::move(action)](Context&) { action(); };
  submit_now(stream, std::move(operation));
  return CUDA_SUCCESS;
}

CUresult free_from_pool(const std::shared_ptr<Pool>& pool, const Allocation& allocation,
                        const std::shared_ptr<Stream>& stream) {
  if (pool->is_imported()) {
    return in_order(stream, [allocation, pool] {
      unmap_imported(allocation);
      release_if_unused(pool);
    });
  }
  pool->give_back(allocation, {submit_memory_operation(stream)});
  return CUDA_SUCCESS;
}

// Graph memory stays known as long as its graph, and has no pool.
bool is_freed_in_order(const Allocation& allocation) {
  return allocation.kind == AllocationKind::Blocking ||
         (allocation.kind == AllocationKind::Async && !allocation.pool.expired());
}

CUresult free_in_order(CUdeviceptr address, const std::shared_ptr<Stream>& stream) {
  const auto taken = Process::get().space().take_if(address, is_freed_in_order);
  if (!taken.has_value()) {
    auto memory = take_graph_memory(address);
    if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return in_order(stream, [memory = std::move(memory)] {});
  }
  if (const auto pool = taken->pool.lock()) return free_from_pool(pool, *taken, stream);
  return in_order(stream, [allocation = *taken] { free_blocking_now(allocation); });
}

}  // namespace

CUVMM_SIM(cuMemAllocAsync)(CUdeviceptr* address, size_t size, CUstream stream) {
  return allocate(address, size, nullptr, stream);
}

CUVMM_SIM(cuMemAllocFromPoolAsync)
(CUdeviceptr* address, size_t size, CUmemoryPool pool, CUstream stream) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return allocate(address, size, pool, stream);
}

CUVMM_SIM(cuMemFreeAsync)(CUdeviceptr address, CUstream stream_handle) {
  std::shared_ptr<Stream> stream;
  const CUresult found = find_stream_of_any_context(stream_handle, &stream);
  if (found != CUDA_SUCCESS) return found;
  if (is_captured(*stream)) {
    return address == 0 ? CUDA_SUCCESS : capture_free(*stream, address);
  }
  if (const CUresult refused = refuse_by_captures(*stream); refused != CUDA_SUCCESS) return refused;
  return address == 0 ? CUDA_SUCCESS : free_in_order(address, stream);
}

}  // namespace cuvmm::sim
