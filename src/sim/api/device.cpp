// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>

#include "sim/bodies.hpp"
#include "sim/context.hpp"
#include "sim/device_attributes.hpp"
#include "sim/device_identity.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

CUresult uuid_of(CUuuid* uuid, CUdevice device) {
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* const known = Process::get().device(device);
  if (known == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const DeviceUuid made = device_uuid(settings().card.name, known->number());
  std::memcpy(uuid->bytes, made.data(), sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

// Copies text into a buffer of the program, truncated as the driver truncates it.
CUresult write_text(char* to, int size, const char* text) {
  if (to == nullptr || size <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(to, static_cast<std::size_t>(size), "%s", text);
  return CUDA_SUCCESS;
}

}  // namespace

CUVMM_SIM(cuDeviceGet)(CUdevice* device, int ordinal) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Process::get().device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuDeviceGetCount)(int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = Process::get().device_count();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuDeviceGetName)(char* name, int size, CUdevice device) {
  if (Process::get().device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return write_text(name, size, device_name);
}

CUVMM_SIM(cuDeviceGetUuid)(CUuuid* uuid, CUdevice device) {
  return uuid_of(uuid, device);
}
CUVMM_SIM(cuDeviceGetUuid_v2)(CUuuid* uuid, CUdevice device) {
  return uuid_of(uuid, device);
}

CUVMM_SIM(cuDeviceTotalMem_v2)(size_t* bytes, CUdevice ordinal) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = Process::get().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = device->memory();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuDeviceGetAttribute)(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* const known = Process::get().device(device);
  if (known == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return device_attribute(attribute, *known, value);
}

CUVMM_SIM(cuDeviceComputeCapability)(int* major, int* minor, CUdevice device) {
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* const known = Process::get().device(device);
  if (known == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, *known, major);
  return device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, *known, minor);
}

CUVMM_SIM(cuDeviceGetPCIBusId)(char* id, int size, CUdevice device) {
  const Device* const known = Process::get().device(device);
  if (known == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  char text[32];
  std::snprintf(text, sizeof text, "0000:%02X:00.0", known->number() + 1);
  return write_text(id, size, text);
}

CUVMM_SIM(cuDeviceGetByPCIBusId)(CUdevice* device, const char* id) {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  if (device == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool with_domain = std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot) == 3;
  if (!with_domain && std::sscanf(id, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
  const Device* const found = Process::get().device_numbered(static_cast<int>(bus) - 1);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = found->ordinal();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuDeviceCanAccessPeer)(int* can, CUdevice device, CUdevice peer) {
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Process& process = Process::get();
  if (process.device(device) == nullptr || process.device(peer) == nullptr) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *can = device != peer && settings().peers == Switch::On ? 1 : 0;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuDeviceGetP2PAttribute)
(int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
  Process& process = Process::get();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (from == to || process.device(from) == nullptr || process.device(to) == nullptr) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUVMM_SIM(cuMemGetInfo_v2)(size_t* free, size_t* total) {
  CUVMM_SIM_CONTEXT(context);
  const Device& device = context->device();
  if (free != nullptr) *free = device.free();
  if (total != nullptr) *total = device.memory();
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
