// SPDX-License-Identifier: Apache-2.0
// Memory that host and kernels use at one address, and a managed variable.
#include "must.cuh"

__managed__ int shared_counter = 5;

__global__ void add_one(int* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += 1;
  if (i == 0) shared_counter += count;
}

int main() {
  constexpr int count = 1000;
  int* values = nullptr;
  MUST(cudaMallocManaged(&values, count * sizeof(int)));
  for (int i = 0; i < count; ++i) values[i] = i;
  add_one<<<8, 128>>>(values, count);
  MUST(cudaDeviceSynchronize());
  for (int i = 0; i < count; ++i) expect_near("managed", i, values[i], i + 1);
  expect_near("managed variable", 0, shared_counter, 5 + count);
  MUST(cudaFree(values));
  return 0;
}
