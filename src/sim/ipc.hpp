// SPDX-License-Identifier: Apache-2.0
// Blocking memory between processes (cuIpc*). What is shared is a chunk: the importing process
// maps all of it once and finds the allocations at their offsets, as the real driver does
// (measured).
#pragma once

#include <memory>

#include "sim/cuda.hpp"

namespace cuvmm::sim {

class Context;

CUresult ipc_handle_of(CUdeviceptr address, CUipcMemHandle* handle);
CUresult open_ipc_handle(const std::shared_ptr<Context>& context, const CUipcMemHandle& handle,
                         CUdeviceptr* address);
CUresult close_ipc_memory(CUdeviceptr address);

}  // namespace cuvmm::sim
