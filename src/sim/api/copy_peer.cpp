// SPDX-License-Identifier: Apache-2.0
// Copies that name a context for each side.
#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/copy_call.hpp"
#include "sim/device.hpp"
#include "sim/process.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {
namespace {

struct PeerCopy {
  CopyPlan plan;
  std::shared_ptr<Context> source;
  std::shared_ptr<Context> target;
};

CUresult plan_peer_copy(const CUDA_MEMCPY3D_PEER& asked, PeerCopy* copy) {
  Process& process = Process::get();
  copy->source = process.contexts.find(asked.srcContext);
  copy->target = process.contexts.find(asked.dstContext);
  // assumed: the card dereferences invalid handles, and crashes on some
  if (copy->source == nullptr || copy->target == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return CopyPlan::make(as_3d(asked), copy->source->device().ordinal(),
                        copy->target->device().ordinal(), &copy->plan);
}

CUresult copy_peer_now(const CUDA_MEMCPY3D_PEER& asked) {
  CUVMM_SIM_CONTEXT(context);
  PeerCopy copy;
  const CUresult answer = plan_peer_copy(asked, &copy);
  if (answer != CUDA_SUCCESS) return answer;
  return copy_blocking(context, copy.plan, {copy.source, copy.target});
}

CUresult copy_peer_in_order(const CUDA_MEMCPY3D_PEER& asked, CUstream named) {
  CUVMM_SIM_CONTEXT(context);
  const auto stream = find_stream(context, named);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  PeerCopy copy;
  if (const CUresult answer = plan_peer_copy(asked, &copy); answer != CUDA_SUCCESS) return answer;
  // Measured: such a copy cannot be captured, even within one context.
  if (const CUresult refused = refuse_captured_stream(*stream); refused != CUDA_SUCCESS) {
    return refused;
  }
  return copy_async(stream, std::move(copy.plan), {copy.source, copy.target});
}

CUDA_MEMCPY3D_PEER linear(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                          CUcontext from_context, Size size) {
  CUDA_MEMCPY3D_PEER copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.srcContext = from_context;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.dstContext = to_context;
  copy.WidthInBytes = size;
  copy.Height = 1;
  copy.Depth = 1;
  return copy;
}

}  // namespace

CUVMM_SIM(cuMemcpyPeer)
(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size) {
  return copy_peer_now(linear(to, to_context, from, from_context, size));
}
CUVMM_SIM(cuMemcpyPeerAsync)
(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size,
 CUstream stream) {
  return copy_peer_in_order(linear(to, to_context, from, from_context, size), stream);
}
CUVMM_SIM(cuMemcpy3DPeer)(const CUDA_MEMCPY3D_PEER* copy) {
  return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_peer_now(*copy);
}
CUVMM_SIM(cuMemcpy3DPeerAsync)(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_peer_in_order(*copy, stream);
}

}  // namespace cuvmm::sim
