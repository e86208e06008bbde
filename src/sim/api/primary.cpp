// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "sim/bodies.hpp"
#include "sim/context.hpp"
#include "sim/context_life.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

// Ends the primary context without the lock, since that takes as long as its work. Whoever retains
// the next one meanwhile waits: it has the same handle.
void end_primary(Device::Primary& primary, Holding& holding) {
  const auto context = std::exchange(primary.context, nullptr);
  primary.retains = 0;  // earlier callers must retain it anew
  primary.is_ending = true;
  holding.unlock();
  end_context(context);
  holding.lock();
  primary.is_ending = false;
  primary.has_ended.notify_all();
}

CUresult release(CUdevice ordinal) {
  Process& process = Process::get();
  Device* device = process.device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Holding holding{process.lock};
  Device::Primary& primary = device->primary;
  if (primary.retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.retains == 0) end_primary(primary, holding);
  return CUDA_SUCCESS;
}

CUresult reset(CUdevice ordinal) {
  Process& process = Process::get();
  Device* device = process.device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Holding holding{process.lock};
  if (device->primary.context != nullptr) end_primary(device->primary, holding);
  return CUDA_SUCCESS;
}

CUresult set_flags(CUdevice ordinal, unsigned flags) {
  Process& process = Process::get();
  Device* device = process.device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const Holding holding{process.lock};
  device->primary.flags = flags;
  if (device->primary.context != nullptr) device->primary.context->set_flags(flags);
  return CUDA_SUCCESS;
}

}  // namespace

CUVMM_SIM(cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice ordinal) {
  Process& process = Process::get();
  Device* device = process.device(ordinal);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Holding holding{process.lock};
  Device::Primary& primary = device->primary;
  primary.has_ended.wait(holding, [&] { return !primary.is_ending; });
  if (primary.context == nullptr) {
    primary.context = Context::create(*device, primary.flags, true);
    process.contexts.add(primary.context);
  }
  ++primary.retains;
  *context = primary.context->handle();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuDevicePrimaryCtxRelease)(CUdevice device) {
  return release(device);
}
CUVMM_SIM(cuDevicePrimaryCtxRelease_v2)(CUdevice device) {
  return release(device);
}
CUVMM_SIM(cuDevicePrimaryCtxReset)(CUdevice device) {
  return reset(device);
}
CUVMM_SIM(cuDevicePrimaryCtxReset_v2)(CUdevice device) {
  return reset(device);
}
CUVMM_SIM(cuDevicePrimaryCtxSetFlags)(CUdevice device, unsigned flags) {
  return set_flags(device, flags);
}
CUVMM_SIM(cuDevicePrimaryCtxSetFlags_v2)(CUdevice device, unsigned flags) {
  return set_flags(device, flags);
}

CUVMM_SIM(cuDevicePrimaryCtxGetState)(CUdevice ordinal, unsigned* flags, int* active) {
  Process& process = Process::get();
  Device* device = process.device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Holding holding{process.lock};
  *flags = device->primary.flags;
  *active = device->primary.context != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
