// SPDX-License-Identifier: Apache-2.0
// Every conversion of printf that programs use, from a kernel.
#include "must.cuh"

__global__ void print_values(const char* name) {
  if (threadIdx.x % 32 != 3) return;
  printf("thread %u of %u: %d %5.2f|%-6s|%c %lld %x %08X %p %e %%\n", threadIdx.x, blockDim.x,
         -static_cast<int>(threadIdx.x), 3.14159 * threadIdx.x, "text", 'c', 1234567890123LL, 48879U,
         0xbeefU, static_cast<const void*>(nullptr), 1.5e10);
  printf("%s\n", name == nullptr ? "no name" : "a name");
}

int main() {
  print_values<<<1, 64>>>(nullptr);
  MUST(cudaGetLastError());
  MUST(cudaDeviceSynchronize());
  return 0;
}
