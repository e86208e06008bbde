// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstring>

#include "sim/bodies.hpp"
#include "sim/context.hpp"
#include "sim/event.hpp"
#include "sim/process.hpp"
#include "sim/shared_record.hpp"

namespace cuvmm::sim {
namespace {

constexpr std::uint64_t kind_of_handle = 0x6e65766576726375;

// The layout of the 64 bytes of a CUipcEventHandle.
struct EventHandle {
  std::uint64_t kind = 0;
  SharedFile file;
};
static_assert(sizeof(EventHandle) <= sizeof(CUipcEventHandle));

}  // namespace

CUVMM_SIM(cuIpcGetEventHandle)(CUipcEventHandle* handle, CUevent event_handle) {
  CUVMM_SIM_CONTEXT(context);
  const auto event = Process::get().events.find(event_handle);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Measured: an event that was not created as interprocess is an invalid handle here.
  if (event == nullptr || event->shared == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto file = event->shared->file();
  if (!file.has_value()) return CUDA_ERROR_OUT_OF_MEMORY;
  const EventHandle made{kind_of_handle, *file};
  *handle = {};
  std::memcpy(handle, &made, sizeof made);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuIpcOpenEventHandle)(CUevent* out, CUipcEventHandle handle) {
  CUVMM_SIM_CONTEXT(context);
  EventHandle read;
  std::memcpy(static_cast<void*>(&read), &handle, sizeof read);
  if (out == nullptr || read.kind != kind_of_handle) return CUDA_ERROR_INVALID_VALUE;
  if (read.file.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // measured
  auto record = SharedRecord::open(read.file);
  if (record == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_shared<Event>();
  event->context = context;
  event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  event->shared = std::move(record);
  *out = Process::get().events.add(std::move(event));
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
