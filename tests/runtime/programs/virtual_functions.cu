// SPDX-License-Identifier: Apache-2.0
// Calls through function pointers, and of virtual functions of objects that kernels create.
#include <new>

#include "must.cuh"

using Operation = int (*)(int, int);

__device__ int add(int a, int b) {
  return a + b;
}
__device__ int subtract(int a, int b) {
  return a - b;
}
__device__ int multiply(int a, int b) {
  return a * b;
}
__device__ Operation operations[] = {add, subtract, multiply};

struct Shape {
  __device__ virtual int area() const = 0;
};
struct Square : Shape {
  __device__ explicit Square(int s) : side(s) {}
  __device__ int area() const override { return side * side; }
  int side;
};
struct Rectangle : Shape {
  __device__ Rectangle(int w, int h) : width(w), height(h) {}
  __device__ int area() const override { return width * height; }
  int width, height;
};

__global__ void calculate(int* results) {
  const int i = threadIdx.x;
  results[i] = operations[i % 3](i, 5);
}

__global__ void measure(int* results, char* storage) {
  const int i = threadIdx.x;
  char* place = storage + i * 32;
  Shape* shape = i % 2 == 0 ? static_cast<Shape*>(new (place) Square(i))
                            : static_cast<Shape*>(new (place) Rectangle(i, 3));
  results[i] = shape->area();
}

int main() {
  constexpr int threads = 48;
  int* results = nullptr;
  char* storage = nullptr;
  MUST(cudaMalloc(&results, threads * sizeof(int)));
  MUST(cudaMalloc(&storage, threads * 32));
  calculate<<<1, threads>>>(results);
  MUST(cudaGetLastError());
  auto found = on_host(results, threads);
  for (int i = 0; i < threads; ++i) {
    const int answers[] = {i + 5, i - 5, i * 5};
    expect_near("by pointer", i, found[i], answers[i % 3]);
  }
  measure<<<1, threads>>>(results, storage);
  MUST(cudaGetLastError());
  found = on_host(results, threads);
  for (int i = 0; i < threads; ++i) expect_near("area", i, found[i], i % 2 == 0 ? i * i : i * 3);
  return 0;
}
