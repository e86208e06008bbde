// SPDX-License-Identifier: Apache-2.0
#include "sim/bodies.hpp"
#include "sim/context.hpp"
#include "sim/context_life.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {

CUVMM_SIM(cuCtxEnablePeerAccess)(CUcontext handle, unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto peer = Process::get().contexts.find(handle);
  if (peer == nullptr || peer == context) return CUDA_ERROR_INVALID_CONTEXT;
  if (&peer->device() == &context->device() || settings().peers == Switch::Off) {
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  }
  if (!context->enable_peer(peer)) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  renew_peer_access(peer);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuCtxDisablePeerAccess)(CUcontext handle) {
  CUVMM_SIM_CONTEXT(context);
  const auto peer = Process::get().contexts.find(handle);
  if (peer == nullptr || peer == context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->disable_peer(peer)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  renew_peer_access(peer);
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
