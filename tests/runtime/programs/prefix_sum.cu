// SPDX-License-Identifier: Apache-2.0
// A prefix sum in dynamic shared memory; a second launch scans the blocks' sums.
#include "must.cuh"

__global__ void scan_blocks(const int* values, int* sums, int* block_sums, int count) {
  extern __shared__ int held[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  int* now = held;
  int* next = held + blockDim.x;
  now[threadIdx.x] = i < count ? values[i] : 0;
  __syncthreads();
  for (unsigned distance = 1; distance < blockDim.x; distance *= 2) {
    next[threadIdx.x] =
        now[threadIdx.x] + (threadIdx.x >= distance ? now[threadIdx.x - distance] : 0);
    __syncthreads();
    int* const before = now;
    now = next;
    next = before;
  }
  if (i < count) sums[i] = now[threadIdx.x];
  if (block_sums != nullptr && threadIdx.x == blockDim.x - 1) {
    block_sums[blockIdx.x] = now[threadIdx.x];
  }
}

__global__ void add_block_sums(int* sums, const int* block_sums, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && blockIdx.x > 0) sums[i] += block_sums[blockIdx.x - 1];
}

int main() {
  constexpr int count = 30'000;
  constexpr int threads = 256;
  constexpr int blocks = (count + threads - 1) / threads;
  std::vector<int> values;
  for (const unsigned number : random_numbers(count, 4)) values.push_back(int(number % 200) - 100);
  int* memory = on_device(values);
  int* sums = nullptr;
  int* block_sums = nullptr;
  MUST(cudaMalloc(&sums, count * sizeof(int)));
  MUST(cudaMalloc(&block_sums, blocks * sizeof(int)));
  constexpr int shared_bytes = 2 * threads * sizeof(int);
  scan_blocks<<<blocks, threads, shared_bytes>>>(memory, sums, block_sums, count);
  scan_blocks<<<1, threads, shared_bytes>>>(block_sums, block_sums, nullptr, blocks);
  add_block_sums<<<blocks, threads>>>(sums, block_sums, count);
  MUST(cudaGetLastError());
  std::vector<int> expected;
  int total = 0;
  for (const int value : values) expected.push_back(total += value);
  expect_equal("prefix sum", on_host(sums, count), expected);
  return 0;
}
