// SPDX-License-Identifier: Apache-2.0
// A program of two files whose device code is compiled separately and linked (nvcc -rdc=true).
#include "../must.cuh"
#include "shapes.cuh"

static __device__ int counter = 7;

__global__ void measure(int* results) {
  const int i = static_cast<int>(threadIdx.x);
  results[i] = area(i, i + 1) + counter;
  if (i < 0) printf("no such thread\n");
}

int main() {
  constexpr int count = 64;
  int* results = nullptr;
  MUST(cudaMalloc(&results, count * sizeof(int)));
  measure<<<1, count>>>(results);
  MUST(cudaGetLastError());
  const auto areas = on_host(results, count);
  for (int i = 0; i < count; ++i) expect_near("area", i, areas[i], i * (i + 1) * 3 + 7);
  int found = 0;
  MUST(cudaMemcpyFromSymbol(&found, measured, sizeof found));
  expect_near("measured", 0, found, 100 + count);

  fill_from_other_file(results, count);
  const auto filled = on_host(results, count);
  for (int i = 0; i < count; ++i) expect_near("filled there", i, filled[i], 1000 + i);
  fill<<<1, count>>>(results, 5);
  const auto filled_here = on_host(results, count);
  for (int i = 0; i < count; ++i) expect_near("filled here", i, filled_here[i], 5 + i);
  return 0;
}
