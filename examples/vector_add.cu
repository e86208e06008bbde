// SPDX-License-Identifier: Apache-2.0
// The sum of two vectors, the first CUDA program of many people. It does not know about cuvmm:
//
//   nvcc -o vector_add vector_add.cu
//   cuvmm run --sim -- ./vector_add
//
// Exit status 0 if every sum is right, 1 if not, 3 if a call fails.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                    \
  do {                                                                                 \
    const cudaError_t answer = (call);                                                 \
    if (answer != cudaSuccess) {                                                       \
      std::fprintf(stderr, "vector_add: %s: %s\n", #call, cudaGetErrorString(answer)); \
      std::exit(3);                                                                    \
    }                                                                                  \
  } while (false)

__global__ void add(const float* a, const float* b, float* sum, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = a[i] + b[i];
}

int main() {
  constexpr int count = 1'000'000;
  constexpr std::size_t bytes = count * sizeof(float);
  std::vector<float> a(count);
  std::vector<float> b(count);
  for (int i = 0; i < count; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(2 * i);
  }

  float* device_a = nullptr;
  float* device_b = nullptr;
  float* device_sum = nullptr;
  CHECK(cudaMalloc(&device_a, bytes));
  CHECK(cudaMalloc(&device_b, bytes));
  CHECK(cudaMalloc(&device_sum, bytes));
  CHECK(cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(device_b, b.data(), bytes, cudaMemcpyHostToDevice));

  constexpr int threads = 256;
  add<<<(count + threads - 1) / threads, threads>>>(device_a, device_b, device_sum, count);
  CHECK(cudaGetLastError());

  std::vector<float> sum(count);
  CHECK(cudaMemcpy(sum.data(), device_sum, bytes, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < count; ++i) wrong += sum[i] != a[i] + b[i] ? 1 : 0;
  std::printf("vector_add: %d sums, %d of them wrong\n", count, wrong);

  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(device_sum));
  return wrong == 0 ? 0 : 1;
}
