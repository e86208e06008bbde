// SPDX-License-Identifier: Apache-2.0
// Counts with atomics in shared and global memory, and with compare-and-swap loops of 32 and 64
// bits, as programs for old cards add doubles.
#include "must.cuh"

constexpr int bins = 64;

__global__ void count_values(const unsigned* values, int count, unsigned* histogram) {
  __shared__ unsigned here[bins];
  for (int i = threadIdx.x; i < bins; i += blockDim.x) here[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    atomicAdd(&here[values[i] % bins], 1U);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < bins; i += blockDim.x) atomicAdd(&histogram[i], here[i]);
}

__device__ double add_by_swapping(double* address, double value) {
  auto* bits = reinterpret_cast<unsigned long long*>(address);
  unsigned long long old = *bits;
  unsigned long long expected = 0;
  do {
    expected = old;
    old = atomicCAS(bits, expected,
                    static_cast<unsigned long long>(
                        __double_as_longlong(value + __longlong_as_double(expected))));
  } while (expected != old);
  return __longlong_as_double(old);
}

struct Totals {
  double by_swapping;
  double by_adding;
  float single;
  unsigned largest;
  unsigned smallest;
  unsigned long long all;
  unsigned ored;
  unsigned xored;
  unsigned wrapped;
  int flag;
};

__global__ void add_up(const unsigned* values, int count, Totals* totals) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const unsigned value = values[i] % 1000;
  add_by_swapping(&totals->by_swapping, value);
  atomicAdd(&totals->by_adding, double(value));
  atomicAdd(&totals->single, float(value % 8));
  atomicMax(&totals->largest, value);
  atomicMin(&totals->smallest, value);
  atomicAdd(&totals->all, static_cast<unsigned long long>(value));
  atomicOr(&totals->ored, 1U << (value % 32));
  atomicXor(&totals->xored, value);
  atomicInc(&totals->wrapped, 9);
  if (atomicExch(&totals->flag, 1) == 0) __threadfence();
}

int main() {
  constexpr int count = 5000;
  const auto values = random_numbers(count, 3);
  unsigned* memory = on_device(values);
  unsigned* histogram = on_device(std::vector<unsigned>(bins, 0));
  count_values<<<8, 128>>>(memory, count, histogram);
  MUST(cudaGetLastError());
  std::vector<unsigned> expected(bins, 0);
  for (const unsigned value : values) ++expected[value % bins];
  expect_equal("histogram", on_host(histogram, bins), expected);

  Totals wanted{};
  wanted.smallest = 1000;
  Totals* totals = on_device(std::vector<Totals>{wanted});
  add_up<<<(count + 127) / 128, 128>>>(memory, count, totals);
  MUST(cudaGetLastError());
  for (const unsigned number : values) {
    const unsigned value = number % 1000;
    wanted.by_swapping += value;
    wanted.single += float(value % 8);
    if (value > wanted.largest) wanted.largest = value;
    if (value < wanted.smallest) wanted.smallest = value;
    wanted.all += value;
    wanted.ored |= 1U << (value % 32);
    wanted.xored ^= value;
    wanted.wrapped = wanted.wrapped >= 9 ? 0 : wanted.wrapped + 1;
  }
  const Totals found = on_host(totals, 1)[0];
  expect_near("by_swapping", 0, found.by_swapping, wanted.by_swapping);
  expect_near("by_adding", 0, found.by_adding, wanted.by_swapping);
  expect_near("single", 0, found.single, wanted.single);
  expect_near("largest", 0, found.largest, wanted.largest);
  expect_near("smallest", 0, found.smallest, wanted.smallest);
  expect_near("all", 0, double(found.all), double(wanted.all));
  expect_near("ored", 0, found.ored, wanted.ored);
  expect_near("xored", 0, found.xored, wanted.xored);
  expect_near("wrapped", 0, found.wrapped, wanted.wrapped);
  expect_near("flag", 0, found.flag, 1);
  return 0;
}
