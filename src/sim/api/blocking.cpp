// SPDX-License-Identifier: Apache-2.0
#include "sim/blocking.hpp"

#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/pool.hpp"
#include "sim/process.hpp"
#include "sim/waiting_frees.hpp"

namespace cuvmm::sim {

CUVMM_SIM(cuMemAlloc_v2)(CUdeviceptr* address, size_t size) {
  CUVMM_SIM_CONTEXT(context);
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  return allocate_blocking(context, size, address);
}

// Blocking memory is freed even if no context is current (measured).
CUVMM_SIM(cuMemFree_v2)(CUdeviceptr address) {
  const auto current = current_context();
  AddressSpace& space = Process::get().space();
  const auto known = space.allocation_at(address);
  const bool needs_none = known.has_value() && known->kind == AllocationKind::Blocking;
  const bool has_none = current.answer == CUDA_ERROR_INVALID_CONTEXT;
  if (current.answer != CUDA_SUCCESS && !(has_none && needs_none)) return current.answer;
  if (address == 0) return CUDA_SUCCESS;
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  if (!known.has_value() || known->address != address) return CUDA_ERROR_INVALID_VALUE;
  switch (known->kind) {
    case AllocationKind::Async:
      return free_async_without_waiting(*known);
    case AllocationKind::Managed:
      return free_managed(*known);
    case AllocationKind::Blocking:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  // Waits for all work of the context that owns the memory, whichever context is current
  // (measured).
  const auto owner = known->context.lock();
  if (owner != nullptr) {
    const WaitingFree waiting{*owner};
    owner->wait_for_all_work();
  }
  // If two threads free it at once, only one of them gets it.
  const auto taken = space.take(address);
  if (!taken.has_value()) return CUDA_ERROR_INVALID_VALUE;
  free_blocking_now(*taken);
  return has_none ? CUDA_SUCCESS : current.context->sticky_error();
}

}  // namespace cuvmm::sim
