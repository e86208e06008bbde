// SPDX-License-Identifier: Apache-2.0
#include "sim/ipc.hpp"

#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"

namespace cuvmm::sim {
namespace {

CUresult open(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags) {
  CUVMM_SIM_CONTEXT(context);
  // The flag is mandatory (measured).
  if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return open_ipc_handle(context, handle, address);
}

}  // namespace

CUVMM_SIM(cuIpcGetMemHandle)(CUipcMemHandle* handle, CUdeviceptr address) {
  CUVMM_SIM_CONTEXT(context);
  return handle == nullptr ? CUDA_ERROR_INVALID_VALUE : ipc_handle_of(address, handle);
}

CUVMM_SIM(cuIpcOpenMemHandle)(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open(address, handle, flags);
}
CUVMM_SIM(cuIpcOpenMemHandle_v2)(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open(address, handle, flags);
}

CUVMM_SIM(cuIpcCloseMemHandle)(CUdeviceptr address) {
  CUVMM_SIM_CONTEXT(context);
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  return close_ipc_memory(address);
}

}  // namespace cuvmm::sim
