// SPDX-License-Identifier: Apache-2.0
// A library that a program opens and closes again. Memory that it allocated stays with the program.
#include "routes.hpp"

extern "C" __attribute__((visibility("default"))) unsigned long long plugin_allocate(
    unsigned long long size) {
  const Calls calls = calls_by_proc_address(12000, 0);
  CUdeviceptr address = 0;
  return calls.cuMemAlloc_(&address, size) == CUDA_SUCCESS ? address : 0;
}
