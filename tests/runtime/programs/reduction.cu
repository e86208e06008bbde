// SPDX-License-Identifier: Apache-2.0
// Sums and extremes of a vector: shuffles within warps, shared memory between them, one atomic per
// block. A template over the type and the operation.
#include "must.cuh"

struct Sum {
  template <class T>
  __host__ __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  template <class T>
  __host__ __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

template <class T, class Operation>
__device__ T over_warp(T value, Operation operation) {
  for (int distance = warpSize / 2; distance > 0; distance /= 2) {
    value = operation(value, __shfl_down_sync(0xffffffff, value, distance));
  }
  return value;
}

template <class T, class Operation>
__global__ void reduce(const T* values, T* results, int count, T neutral, Operation operation) {
  __shared__ T partial[32];
  T value = neutral;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    value = operation(value, values[i]);
  }
  value = over_warp(value, operation);
  const int lane = threadIdx.x % warpSize;
  const int warp = threadIdx.x / warpSize;
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  if (warp != 0) return;
  value = lane < static_cast<int>(blockDim.x / warpSize) ? partial[lane] : neutral;
  value = over_warp(value, operation);
  if (lane == 0) results[blockIdx.x] = value;
}

template <class T, class Operation>
void expect_reduced(const char* what, T neutral, Operation operation) {
  constexpr int count = 100'003;
  constexpr int blocks = 24;
  std::vector<T> values;
  for (const unsigned number : random_numbers(count, 1)) values.push_back(T(number % 1000) - 500);
  T expected = neutral;
  for (const T value : values) expected = operation(expected, value);
  T* memory = on_device(values);
  T* results = nullptr;
  MUST(cudaMalloc(&results, blocks * sizeof(T)));
  reduce<<<blocks, 256>>>(memory, results, count, neutral, operation);
  MUST(cudaGetLastError());
  T found = neutral;
  for (const T part : on_host(results, blocks)) found = operation(found, part);
  expect_near(what, 0, double(found), double(expected));
  MUST(cudaFree(memory));
  MUST(cudaFree(results));
}

int main() {
  expect_reduced<int>("sum of int", 0, Sum{});
  expect_reduced<long long>("sum of long long", 0, Sum{});
  expect_reduced<float>("sum of float", 0, Sum{});
  expect_reduced<double>("sum of double", 0, Sum{});
  expect_reduced<int>("largest int", -1000, Largest{});
  expect_reduced<double>("largest double", -1000, Largest{});
  return 0;
}
