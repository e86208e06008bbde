// SPDX-License-Identifier: Apache-2.0
// Sharing of blocking memory between processes (cuIpc*). The unit of sharing is a chunk: the
// importing process maps the whole chunk once and finds the allocations at their offsets, as with
// the real driver (measured).
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
