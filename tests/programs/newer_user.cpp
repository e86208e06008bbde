// SPDX-License-Identifier: Apache-2.0
// A library that is linked to FILL_FUNCTION of the newer driver.
#include <cuda.h>

extern "C" {

CUresult FILL_FUNCTION(CUdeviceptr address, unsigned char value, size_t size, CUstream stream);

// Fills the memory many times, and returns before that is done.
__attribute__((visibility("default"))) int fill_for_long(CUdeviceptr address, size_t size) {
  CUstream stream = nullptr;
  CUresult answer = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  for (int i = 0; answer == CUDA_SUCCESS && i < 300; ++i) {
    answer = FILL_FUNCTION(address, 0xee, size, stream);
  }
  return answer;
}

}  // extern "C"
