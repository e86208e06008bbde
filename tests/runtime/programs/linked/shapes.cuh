// SPDX-License-Identifier: Apache-2.0
#pragma once

__device__ int area(int width, int height);
extern __device__ int measured;
extern __constant__ int scale;

// Instantiated in both files, present once in the program.
template <class T>
__global__ void fill(T* values, T value) {
  values[threadIdx.x] = value + static_cast<T>(threadIdx.x);
}

void fill_from_other_file(int* values, int count);
