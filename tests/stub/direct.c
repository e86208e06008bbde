// SPDX-License-Identifier: Apache-2.0
// Calls functions of the driver that it is linked to.
#include <cuda.h>

#include "direct.h"

size_t total_by_direct_calls(void) {
  CUdevice device = -1;
  CUcontext context = NULL;
  size_t free_bytes = 0;
  size_t total = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) return 0;
  if (cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return 0;
  if (cuCtxSetCurrent(context) != CUDA_SUCCESS) return 0;
  if (cuMemGetInfo(&free_bytes, &total) != CUDA_SUCCESS) return 0;
  return total;
}

// Eight arguments or more: at least two go on the stack, even at the first call of the function.
int copies_by_direct_calls(void) {
  enum { rows = 4, width = 16 };
  unsigned char from[rows * width];
  unsigned char to[rows * width];
  CUdeviceptr memory = 0;
  size_t pitch = 0;
  for (int i = 0; i < rows * width; ++i) from[i] = (unsigned char)i;
  if (cuMemAllocPitch(&memory, &pitch, width, rows, 4) != CUDA_SUCCESS) return 0;
  CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = from,
                        .srcPitch = width,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = memory,
                        .dstPitch = pitch,
                        .WidthInBytes = width,
                        .Height = rows};
  if (cuMemcpy2D(&copy) != CUDA_SUCCESS) return 0;
  for (int row = 0; row < rows; ++row) {
    if (cuMemcpyDtoH(to + row * width, memory + row * pitch, width) != CUDA_SUCCESS) return 0;
  }
  for (int i = 0; i < rows * width; ++i) {
    if (to[i] != from[i]) return 0;
  }
  return cuMemFree(memory) == CUDA_SUCCESS;
}
