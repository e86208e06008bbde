// SPDX-License-Identifier: Apache-2.0
// Linked to the preload library itself, since the loader preloads nothing under secure execution.
// Prints whether it runs under secure execution, and uses memory.
#include <sys/auxv.h>

#include "routes.hpp"

int main() {
  const Calls calls = calls_by_link();
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  std::printf("secure %lu\n", getauxval(AT_SECURE));
  if (calls.cuInit_(0) != CUDA_SUCCESS) return 10;
  if (calls.cuDevicePrimaryCtxRetain_(&context, 0) != CUDA_SUCCESS) return 11;
  if (calls.cuCtxSetCurrent_(context) != CUDA_SUCCESS) return 12;
  if (calls.cuMemAlloc_(&address, 1 << 20) != CUDA_SUCCESS) return 13;
  return calls.cuMemFree_(address) == CUDA_SUCCESS ? 0 : 14;
}
