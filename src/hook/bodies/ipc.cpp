// SPDX-License-Identifier: Apache-2.0
// Memory shared between processes by 64-byte handles. The driver handles its own memory; cuvmm only
// counts it. Processes that share memory may wait for each other, so cuvmm tells the node service
// which do.
#include "base/interprocess_memory.hpp"
#include "base/log.hpp"
#include "engine/control.hpp"
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

// Calls `forwarded` if the driver itself has served the call.
template <Call call, class Serve, class Forwarded, class... Arguments>
CUresult serve_or_forward(const Forward<call>& forward, Serve&& serve, Forwarded&& forwarded,
                          Arguments... arguments) {
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  Serving* const serving = forward.engine().serving();
  if (const Answer answer = serving != nullptr ? serve(serving->ipc) : std::nullopt) return *answer;
  const CUresult answer = forward.announced(arguments...);
  if (answer == CUDA_SUCCESS) forwarded();
  return answer;
}

template <Call call>
CUresult open(const Forward<call>& forward, CUdeviceptr* address, const CUipcMemHandle& handle,
              unsigned flags) {
  if (forward.engine().serving() == nullptr && LegacyIpc::is_ours(handle)) {
    CUVMM_LOG_ONCE(Warning,
                   "an IPC handle comes from a process in VMM_MODE=VMM, whose memory can be opened "
                   "only by another such process; this one runs in another mode");
  }
  const CUresult answer = serve_or_forward(
      forward, [&](LegacyIpc& ipc) { return ipc.open(address, handle, flags); },
      &InterprocessMemory::add, address, handle, flags);
  if (answer == CUDA_SUCCESS) forward.engine().shares(handle);
  return answer;
}

}  // namespace

CUVMM_HOOK(cuIpcGetMemHandle, CUipcMemHandle* handle, CUdeviceptr address) {
  const auto handle_of = [&](LegacyIpc& ipc) -> Answer {
    Serving& serving = *forward.engine().serving();
    if (current_context(forward.engine().driver()) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const CUresult lost = serving.memory.work().error_of_lost_context();
    if (lost != CUDA_SUCCESS) return lost;
    const auto held = serving.memory.find(address);
    if (held && is_past_requested_size(*held, address)) return CUDA_ERROR_INVALID_VALUE;
    if (handle != nullptr && serving.program_chunks.contains(address)) {
      const auto made = forward.engine().control()->make_exportable(address);
      if (!made.ok()) return LegacyIpc::refuse_handle(made.error());
    }
    return ipc.handle_of(address, handle);
  };
  // Nobody can tell when no other process has the memory open any more.
  const CUresult answer =
      serve_or_forward(forward, handle_of, &InterprocessMemory::add, handle, address);
  if (answer == CUDA_SUCCESS) forward.engine().shares(*handle);
  return answer;
}
CUVMM_HOOK(cuIpcOpenMemHandle, CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open(forward, address, handle, flags);
}
CUVMM_HOOK(cuIpcOpenMemHandle_v2, CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open(forward, address, handle, flags);
}
CUVMM_HOOK(cuIpcCloseMemHandle, CUdeviceptr address) {
  return serve_or_forward(
      forward, [&](LegacyIpc& ipc) { return ipc.close(address); }, &InterprocessMemory::remove,
      address);
}

// Memory of another API, such as Vulkan's, or of another process.
CUVMM_HOOK(cuImportExternalMemory, CUexternalMemory* memory,
           const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* handle) {
  const CUresult answer = forward(memory, handle);
  if (answer == CUDA_SUCCESS) InterprocessMemory::add();
  return answer;
}
CUVMM_HOOK(cuDestroyExternalMemory, CUexternalMemory memory) {
  const CUresult answer = forward(memory);
  if (answer == CUDA_SUCCESS) InterprocessMemory::remove();
  return answer;
}

}  // namespace cuvmm::hook
