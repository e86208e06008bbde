// SPDX-License-Identifier: Apache-2.0
// A driver with one device that lacks the feature that CUVMM_DRIVER_LACKS names: vmm (virtual
// memory management) or fd (memory by file descriptor). It answers the queries that a program makes
// before it gives up.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}
EXPORTED CUresult cuDeviceGet(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}
EXPORTED CUresult cuDeviceGetName(char* name, int room, CUdevice) {
  std::snprintf(name, static_cast<std::size_t>(room), "a device that lacks something");
  return CUDA_SUCCESS;
}
EXPORTED CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  const char* const lacks = std::getenv("CUVMM_DRIVER_LACKS");
  const std::string_view missing = lacks != nullptr ? lacks : "";
  *value = 1;
  if (which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED && missing == "vmm") {
    *value = 0;
  }
  if (which == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED && missing == "fd") {
    *value = 0;
  }
  return CUDA_SUCCESS;
}
