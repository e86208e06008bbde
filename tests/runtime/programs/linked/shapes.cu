// SPDX-License-Identifier: Apache-2.0
#include "shapes.cuh"

#include <cstdio>

__device__ int measured = 100;
__constant__ int scale = 3;

// The other file uses the same name.
static __device__ int counter = 0;

__device__ int area(int width, int height) {
  atomicAdd(&counter, 1);
  atomicAdd(&measured, 1);
  if (width < 0) printf("no such width\n");
  return width * height * scale;
}

void fill_from_other_file(int* values, int count) {
  fill<<<1, count>>>(values, 1000);
}
