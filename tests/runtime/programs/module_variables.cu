// SPDX-License-Identifier: Apache-2.0
// __constant__ and __device__ variables, written and read by the host and by kernels; tables
// initialized with values, and with addresses of others.
#include "must.cuh"

__constant__ float coefficients[4];
__constant__ int table[5] = {2, 3, 5, 7, 11};
__device__ int counter = 40;
__device__ double scratch[16];
__device__ const char* const names[] = {"zero", "one", "two"};
__device__ int* pointer_to_counter = &counter;

__global__ void evaluate(float* results, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float x = float(i) / 16;
  float value = 0;
  for (int k = 3; k >= 0; --k) value = value * x + coefficients[k];
  results[i] = value + table[i % 5];
  if (i < 16) scratch[i] = scratch[i] * 2 + i;
  atomicAdd(&counter, 1);
}

__global__ void follow_pointers(int* lengths) {
  int length = 0;
  while (names[threadIdx.x][length] != '\0') ++length;
  lengths[threadIdx.x] = length;
  if (threadIdx.x == 0) *pointer_to_counter += 1000;
}

int main() {
  constexpr int count = 100;
  const float given[4] = {1, -2, 0.5F, 0.25F};
  MUST(cudaMemcpyToSymbol(coefficients, given, sizeof given));
  std::vector<double> begun(16, 1.5);
  void* scratch_address = nullptr;
  std::size_t scratch_bytes = 0;
  MUST(cudaGetSymbolAddress(&scratch_address, scratch));
  MUST(cudaGetSymbolSize(&scratch_bytes, scratch));
  expect_near("size", 0, double(scratch_bytes), 16 * sizeof(double));
  MUST(cudaMemcpy(scratch_address, begun.data(), scratch_bytes, cudaMemcpyHostToDevice));
  float* results = nullptr;
  MUST(cudaMalloc(&results, count * sizeof(float)));
  evaluate<<<2, 64>>>(results, count);
  MUST(cudaGetLastError());
  const auto found = on_host(results, count);
  const int primes[5] = {2, 3, 5, 7, 11};
  for (int i = 0; i < count; ++i) {
    const float x = float(i) / 16;
    float value = 0;
    for (int k = 3; k >= 0; --k) value = std::fma(value, x, given[k]);
    expect_near("polynomial", i, found[i], value + primes[i % 5], 1e-6);
  }
  int counted = 0;
  MUST(cudaMemcpyFromSymbol(&counted, counter, sizeof counted));
  expect_near("counter", 0, counted, 40 + count);
  double changed[16];
  MUST(cudaMemcpyFromSymbol(changed, scratch, sizeof changed));
  for (int i = 0; i < 16; ++i) expect_near("scratch", i, changed[i], 3.0 + i);

  int* lengths = nullptr;
  MUST(cudaMalloc(&lengths, 3 * sizeof(int)));
  follow_pointers<<<1, 3>>>(lengths);
  MUST(cudaGetLastError());
  expect_equal("lengths", on_host(lengths, 3), {4, 3, 3});
  MUST(cudaMemcpyFromSymbol(&counted, counter, sizeof counted));
  expect_near("counter through a pointer", 0, counted, 1040 + count);
  return 0;
}
