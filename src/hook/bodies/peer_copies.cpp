// SPDX-License-Identifier: Apache-2.0
// A plain copy to or from another device's blocking memory needs no peer access. Of memory that is
// mapped, as ours is, the driver wants to be told the contexts; so where it refuses, it is told.
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

// `copy(to, from)` copies between two contexts.
template <Call call, class Copy>
CUresult or_between_contexts(const Forward<call>& forward, CUresult answer, CUdeviceptr to,
                             CUdeviceptr from, Copy&& copy) {
  Serving* serving = forward.engine().serving();
  if (serving == nullptr || answer != CUDA_ERROR_INVALID_VALUE) return answer;
  const Driver& driver = forward.engine().driver();
  const Side target = side(*serving, driver, to);
  const Side source = side(*serving, driver, from);
  if (!target.is_ours && !source.is_ours) return answer;
  if (target.context == nullptr || source.context == nullptr) return answer;
  if (target.context == source.context) return answer;
  const Gate::Pass pass{forward.engine().gate()};
  const CUresult copied = copy(target.context, source.context);
  forward.engine().work_note().leave();
  return copied;
}

template <Call call>
CUresult copy(const Forward<call>& forward, CUdeviceptr to, CUdeviceptr from, size_t size) {
  const Driver& driver = forward.engine().driver();
  return or_between_contexts(
      forward, forward(to, from, size), to, from, [&](CUcontext of_target, CUcontext of_source) {
        const auto peer = forward.flavour() == Flavour::PerThread ? driver.cuMemcpyPeer_per_thread
                                                                  : driver.cuMemcpyPeer;
        return peer(to, of_target, from, of_source, size);
      });
}

template <Call call>
CUresult copy_ordered(const Forward<call>& forward, CUdeviceptr to, CUdeviceptr from, size_t size,
                      CUstream stream) {
  const Driver& driver = forward.engine().driver();
  return or_between_contexts(forward, forward(to, from, size, stream), to, from,
                             [&](CUcontext of_target, CUcontext of_source) {
                               const auto peer = forward.flavour() == Flavour::PerThread
                                                     ? driver.cuMemcpyPeerAsync_per_thread
                                                     : driver.cuMemcpyPeerAsync;
                               return peer(to, of_target, from, of_source, size, stream);
                             });
}

}  // namespace

CUVMM_HOOK(cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(forward, to, from, size);
}
CUVMM_HOOK(cuMemcpyDtoD_v2, CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(forward, to, from, size);
}
CUVMM_HOOK(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_ordered(forward, to, from, size, stream);
}
CUVMM_HOOK(cuMemcpyDtoDAsync_v2, CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_ordered(forward, to, from, size, stream);
}

}  // namespace cuvmm::hook
