// SPDX-License-Identifier: Apache-2.0
// A plain copy to or from another device's blocking memory needs no peer access. Of memory that is
// mapped, as ours is, the driver wants to be told the contexts, or to be in the one; so where it
// refuses, it is.
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

struct Side {
  CUcontext context = nullptr;
  bool is_ours = false;
};

Side side(Serving& serving, const Driver& driver, CUdeviceptr address) {
  if (const auto held = serving.memory.find(address)) {
    const ContextMemory* owner = serving.memory.context_of(*held);
    return {.context = owner != nullptr ? owner->context() : nullptr, .is_ours = true};
  }
  Side theirs;
  if (driver.cuPointerGetAttribute(&theirs.context, CU_POINTER_ATTRIBUTE_CONTEXT, address) !=
      CUDA_SUCCESS) {
    theirs.context = nullptr;
  }
  return theirs;
}

// One side is the host's.
template <class Copy>
CUresult copy_in(Engine& engine, CUcontext context, Copy&& copy) {
  const InContext in_context{engine.driver(), context};
  if (!in_context.ok()) return CUDA_ERROR_INVALID_CONTEXT;
  return copy();
}

// `between` copies between two contexts, `within` in the current one where one side is the host's.
template <class Between, class Within>
CUresult with_contexts(Engine& engine, CUresult answer, CUdeviceptr to, CUdeviceptr from,
                       Between&& between, Within&& within) {
  Serving* serving = engine.serving();
  if (serving == nullptr || answer != CUDA_ERROR_INVALID_VALUE) return answer;
  const Side target = side(*serving, engine.driver(), to);
  const Side source = side(*serving, engine.driver(), from);
  const bool ours = (target.is_ours && target.context != nullptr) ||
                    (source.is_ours && source.context != nullptr);
  if (!ours || target.context == source.context) return answer;
  const CUcontext only = target.context == nullptr   ? source.context
                         : source.context == nullptr ? target.context
                                                     : nullptr;
  if (only == current_context(engine.driver())) return answer;
  const Gate::Pass pass{engine.gate()};
  const CUresult copied =
      only != nullptr ? copy_in(engine, only, within) : between(target.context, source.context);
  engine.work_note().leave();
  engine.legacy_barrier().anything_submitted();
  return copied;
}

// What goes past `forward` waits for memory with SYNC_MEMOPS as that does.
template <Call call, class Copy>
CUresult completed(const Forward<call>& forward, CUstream stream, CUdeviceptr to, CUdeviceptr from,
                   const Copy& copy) {
  Engine& engine = forward.engine();
  if (is_asynchronous(info(call).name) || !some_memory_is_synchronous(engine)) return copy();
  const bool null_is_per_thread = forward.flavour() == Flavour::PerThread;
  return call_synchronously_if_named(engine, null_is_per_thread, copy, to, from, stream);
}

template <Call call, class... Arguments>
CUresult copy(const Forward<call>& forward, CUdeviceptr to, CUdeviceptr from, size_t size,
              Arguments... arguments) {
  if (const Answer answer = put_off(forward, to, from, size, nullptr)) return *answer;
  const Driver& driver = forward.engine().driver();
  const bool per_thread = forward.flavour() == Flavour::PerThread;
  return with_contexts(
      forward.engine(), forward(arguments...), to, from,
      [&](CUcontext of_target, CUcontext of_source) {
        const auto peer = per_thread ? driver.cuMemcpyPeer_per_thread : driver.cuMemcpyPeer;
        return completed(forward, nullptr, to, from,
                         [&] { return peer(to, of_target, from, of_source, size); });
      },
      [&] { return forward.unannounced(arguments...); });
}

template <Call call, class... Arguments>
CUresult copy_ordered(const Forward<call>& forward, CUdeviceptr to, CUdeviceptr from, size_t size,
                      CUstream stream, Arguments... arguments) {
  if (const Answer answer = put_off(forward, to, from, size, stream)) return *answer;
  const Driver& driver = forward.engine().driver();
  const bool per_thread = forward.flavour() == Flavour::PerThread;
  return with_contexts(
      forward.engine(), forward(arguments..., stream), to, from,
      [&](CUcontext of_target, CUcontext of_source) {
        const auto peer =
            per_thread ? driver.cuMemcpyPeerAsync_per_thread : driver.cuMemcpyPeerAsync;
        return completed(forward, stream, to, from,
                         [&] { return peer(to, of_target, from, of_source, size, stream); });
      },
      // The stream is of the other context, so its work is waited for instead.
      [&] {
        const auto wait =
            per_thread ? driver.cuStreamSynchronize_per_thread : driver.cuStreamSynchronize;
        const CUresult waited = wait(stream);
        return waited != CUDA_SUCCESS ? waited : driver.cuMemcpy(to, from, size);
      });
}

CUdeviceptr number(const void* host) {
  return reinterpret_cast<CUdeviceptr>(host);
}

}  // namespace

CUVMM_HOOK(cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(forward, to, from, size, to, from, size);
}
CUVMM_HOOK(cuMemcpyDtoD_v2, CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(forward, to, from, size, to, from, size);
}
CUVMM_HOOK(cuMemcpyHtoD_v2, CUdeviceptr to, const void* from, size_t size) {
  return copy(forward, to, number(from), size, to, from, size);
}
CUVMM_HOOK(cuMemcpyDtoH_v2, void* to, CUdeviceptr from, size_t size) {
  return copy(forward, number(to), from, size, to, from, size);
}
CUVMM_HOOK(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_ordered(forward, to, from, size, stream, to, from, size);
}
CUVMM_HOOK(cuMemcpyDtoDAsync_v2, CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_ordered(forward, to, from, size, stream, to, from, size);
}
CUVMM_HOOK(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  return copy_ordered(forward, to, number(from), size, stream, to, from, size);
}
CUVMM_HOOK(cuMemcpyDtoHAsync_v2, void* to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_ordered(forward, number(to), from, size, stream, to, from, size);
}

}  // namespace cuvmm::hook
