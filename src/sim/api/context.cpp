// SPDX-License-Identifier: Apache-2.0
#include "sim/context.hpp"
#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context_life.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

constexpr unsigned flags_of_contexts = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST |
                                       CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_COREDUMP_ENABLE |
                                       CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_SYNC_MEMOPS;

CUresult create(CUcontext* out, unsigned flags, CUdevice ordinal) {
  Device* device = Process::get().device(ordinal);
  if (out == nullptr || (flags & ~flags_of_contexts) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  auto context = Context::create(*device, flags, false);
  const CUcontext handle = Process::get().contexts.add(std::move(context));
  ContextStack::of_this_thread().push_back(handle);
  *out = handle;
  return CUDA_SUCCESS;
}

CUresult destroy(CUcontext handle) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto context = Process::get().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->is_primary()) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = ContextStack::of_this_thread();
  if (!stack.empty() && stack.back() == handle) stack.pop_back();
  end_context(context);
  return CUDA_SUCCESS;
}

CUresult synchronize(const std::shared_ptr<Context>& context) {
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  if (const CUresult refused = refuse_context_wait(*context); refused != CUDA_SUCCESS) {
    return refused;
  }
  context->wait_for_all_work();
  note_synchronized(*context);
  return context->sticky_error();
}

CUresult current_device(CUdevice* device) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto context = ContextStack::current();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device().ordinal();
  return CUDA_SUCCESS;
}

}  // namespace

CUVMM_SIM(cuCtxCreate)(CUcontext* out, unsigned flags, CUdevice device) {
  return create(out, flags, device);
}
CUVMM_SIM(cuCtxCreate_v2)(CUcontext* out, unsigned flags, CUdevice device) {
  return create(out, flags, device);
}
CUVMM_SIM(cuCtxCreate_v3)
(CUcontext* out, CUexecAffinityParam* affinities, int count, unsigned flags, CUdevice device) {
  if (affinities != nullptr || count != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(out, flags, device);
}
CUVMM_SIM(cuCtxCreate_v4)
(CUcontext* out, CUctxCreateParams* parameters, unsigned flags, CUdevice device) {
  if (parameters != nullptr &&
      (parameters->numExecAffinityParams != 0 || parameters->cigParams != nullptr)) {
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  }
  return create(out, flags, device);
}

CUVMM_SIM(cuCtxDestroy)(CUcontext context) {
  return destroy(context);
}
CUVMM_SIM(cuCtxDestroy_v2)(CUcontext context) {
  return destroy(context);
}

// A primary context ends with its last release, whatever is attached (measured).
CUVMM_SIM(cuCtxAttach)(CUcontext* out, unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!context->is_primary()) context->attach();
  *out = context->handle();
  return CUDA_SUCCESS;
}
CUVMM_SIM(cuCtxDetach)(CUcontext handle) {
  CUVMM_SIM_CONTEXT(context);
  if (context->handle() != handle) return CUDA_ERROR_INVALID_CONTEXT;
  const bool ends = !context->is_primary() && context->detach();
  return ends ? destroy(handle) : CUDA_SUCCESS;
}

CUVMM_SIM(cuCtxPushCurrent_v2)(CUcontext context) {
  if (!may_be_current(context)) return CUDA_ERROR_INVALID_CONTEXT;
  ContextStack::of_this_thread().push_back(context);
  return CUDA_SUCCESS;
}
CUVMM_SIM(cuCtxPushCurrent)(CUcontext context) {
  return sim_cuCtxPushCurrent_v2(context);
}

CUVMM_SIM(cuCtxPopCurrent_v2)(CUcontext* context) {
  auto& stack = ContextStack::of_this_thread();
  if (stack.empty() || stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}
CUVMM_SIM(cuCtxPopCurrent)(CUcontext* context) {
  return sim_cuCtxPopCurrent_v2(context);
}

CUVMM_SIM(cuCtxSetCurrent)(CUcontext context) {
  auto& stack = ContextStack::of_this_thread();
  if (context != nullptr && !may_be_current(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuCtxGetCurrent)(CUcontext* context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& stack = ContextStack::of_this_thread();
  *context = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuCtxGetDevice)(CUdevice* device) {
  return current_device(device);
}
CUVMM_SIM(cuCtxGetDevice_v2)(CUdevice* device, CUcontext handle) {
  if (handle == nullptr) return current_device(device);
  const auto context = Process::get().contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device().ordinal();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuCtxGetFlags)(unsigned* flags) {
  CUVMM_SIM_CONTEXT(context);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuCtxSetFlags)(unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  if ((flags & ~flags_of_contexts) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->set_flags(flags);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuCtxGetId)(CUcontext handle, unsigned long long* id) {
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto context =
      handle == nullptr ? ContextStack::current() : Process::get().contexts.find(handle);
  if (context == nullptr) {
    return handle == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  *id = context->id();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuCtxGetApiVersion)(CUcontext handle, unsigned* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (handle != nullptr && Process::get().contexts.find(handle) == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *version = 3020;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuCtxSynchronize)() {
  CUVMM_SIM_CONTEXT(context);
  return synchronize(context);
}
CUVMM_SIM(cuCtxSynchronize_v2)(CUcontext handle) {
  if (handle == nullptr) return sim_cuCtxSynchronize();
  const auto context = Process::get().contexts.find(handle);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : synchronize(context);
}

CUVMM_SIM(cuCtxGetStreamPriorityRange)(int* least, int* greatest) {
  CUVMM_SIM_CONTEXT(context);
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuCtxSetLimit)(CUlimit limit, size_t value) {
  CUVMM_SIM_CONTEXT(context);
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  const Holding holding{Process::get().lock};
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuCtxGetLimit)(size_t* value, CUlimit limit) {
  CUVMM_SIM_CONTEXT(context);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  const Holding holding{Process::get().lock};
  const auto found = context->limits.find(limit);
  // The limits of a new context: sizes of the stack, the print buffer and the heap.
  const std::size_t at_first = limit == CU_LIMIT_STACK_SIZE         ? 1024
                               : limit == CU_LIMIT_PRINTF_FIFO_SIZE ? 7 * MiB
                               : limit == CU_LIMIT_MALLOC_HEAP_SIZE ? 8 * MiB
                                                                    : 0;
  *value = found == context->limits.end() ? at_first : found->second;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuCtxResetPersistingL2Cache)() {
  CUVMM_SIM_CONTEXT(context);
  return CUDA_SUCCESS;  // there is no cache to reset
}

CUVMM_SIM(cuCtxGetCacheConfig)(CUfunc_cache* config) {
  CUVMM_SIM_CONTEXT(context);
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = static_cast<CUfunc_cache>(context->cache_config.load());
  return CUDA_SUCCESS;
}
CUVMM_SIM(cuCtxSetCacheConfig)(CUfunc_cache config) {
  CUVMM_SIM_CONTEXT(context);
  context->cache_config = config;
  return CUDA_SUCCESS;
}
CUVMM_SIM(cuCtxGetSharedMemConfig)(CUsharedconfig* config) {
  CUVMM_SIM_CONTEXT(context);
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = static_cast<CUsharedconfig>(context->shared_memory_config.load());
  return CUDA_SUCCESS;
}
CUVMM_SIM(cuCtxSetSharedMemConfig)(CUsharedconfig config) {
  CUVMM_SIM_CONTEXT(context);
  context->shared_memory_config = config;
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
