// SPDX-License-Identifier: Apache-2.0
// A kernel whose last block writes outside any memory. Ends with status 0 if that gives
// cudaErrorIllegalAddress, at once and for every later call.
#include "must.cuh"

__global__ void write_far_away(int* values, int which) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  values[i == which ? i + (1LL << 38) : i] = i;
}

int main() {
  constexpr int count = 256;
  int* values = nullptr;
  MUST(cudaMalloc(&values, count * sizeof(int)));
  write_far_away<<<count / 64, 64>>>(values, 3 * 64 + 17);
  MUST(cudaGetLastError());
  if (cudaDeviceSynchronize() != cudaErrorIllegalAddress) return 1;
  return cudaMemset(values, 0, 4) == cudaErrorIllegalAddress ? 0 : 1;
}
