// SPDX-License-Identifier: Apache-2.0
// The device's mathematical functions in float and double, compared with the host's, in a
// grid-stride loop.
#include "must.cuh"

constexpr int functions = 22;

template <class T>
__host__ __device__ void evaluate(T x, T* results) {
  int i = 0;
  results[i++] = sqrt(x);
  results[i++] = T(1) / sqrt(x);
  results[i++] = sin(x);
  results[i++] = cos(x);
  results[i++] = tan(x);
  results[i++] = exp(-x);
  results[i++] = exp2(x / 8);
  results[i++] = log(x);
  results[i++] = log2(x);
  results[i++] = log10(x);
  results[i++] = log1p(x);
  results[i++] = pow(x, T(0.7));
  results[i++] = atan(x);
  results[i++] = atan2(x, T(3));
  results[i++] = tanh(x);
  results[i++] = asin(x / 64);
  results[i++] = cbrt(x);
  results[i++] = erf(x);
  results[i++] = floor(x) + ceil(x) + rint(x) + trunc(x);
  results[i++] = fmod(x, T(0.7));
  results[i++] = hypot(x, T(4));
  results[i++] = x / T(3);
}

template <class T>
__global__ void evaluate_all(const T* values, T* results, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    evaluate(values[i], results + i * functions);
  }
}

template <class T>
void expect_all(const char* what, double error) {
  constexpr int count = 200;
  std::vector<T> values;
  for (int i = 0; i < count; ++i) values.push_back(T(0.013) + T(i) * T(0.31));
  T* memory = on_device(values);
  T* results = nullptr;
  MUST(cudaMalloc(&results, count * functions * sizeof(T)));
  evaluate_all<<<2, 64>>>(memory, results, count);
  MUST(cudaGetLastError());
  const auto found = on_host(results, count * functions);
  for (int i = 0; i < count; ++i) {
    T expected[functions];
    evaluate(values[i], expected);
    for (int k = 0; k < functions; ++k) {
      expect_near(what, i * 100 + k, found[i * functions + k], expected[k], error);
    }
  }
}

int main() {
  expect_all<double>("double", 1e-13);
  expect_all<float>("float", 2e-5);
  return 0;
}
