// SPDX-License-Identifier: Apache-2.0
// Arithmetic of half and bfloat16 numbers, single and packed, compared with float arithmetic that
// is rounded once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "must.cuh"

constexpr int operations = 14;

template <class T>
__global__ void evaluate(const T* values, float* results, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const T a = values[i];
  const T b = values[(i + 1) % count];
  const T c = values[(i + 2) % count];
  const T all[operations] = {__hadd(a, b),
                             __hsub(a, b),
                             __hmul(a, b),
                             __hfma(a, b, c),
                             __hneg(a),
                             __habs(a),
                             __hmin(a, b),
                             __hmax(a, b),
                             __hlt(a, b) ? a : b,
                             __hge(a, b) ? a : b,
                             T(float(a)),
                             __hadd_sat(a, b),
                             hsqrt(__habs(a)),
                             __hdiv(a, b)};
  for (int k = 0; k < operations; ++k) results[i * operations + k] = float(all[k]);
}

template <class T>
T rounded(float value);
template <>
__half rounded(float value) {
  return __float2half_rn(value);
}
template <>
__nv_bfloat16 rounded(float value) {
  return __float2bfloat16_rn(value);
}

template <class T>
void expect_all(const char* what) {
  constexpr int count = 200;
  std::vector<T> values;
  for (int i = 0; i < count; ++i) values.push_back(rounded<T>(float(i * i % 97) / 16 - 2.3F));
  T* memory = on_device(values);
  float* results = nullptr;
  MUST(cudaMalloc(&results, count * operations * sizeof(float)));
  evaluate<<<2, 128>>>(memory, results, count);
  MUST(cudaGetLastError());
  const auto found = on_host(results, count * operations);
  for (int i = 0; i < count; ++i) {
    const float a = float(values[i]);
    const float b = float(values[(i + 1) % count]);
    const float c = float(values[(i + 2) % count]);
    const float sum = a + b;
    const float exact[operations] = {sum,
                                     a - b,
                                     a * b,
                                     float(double(a) * b + c),
                                     -a,
                                     std::fabs(a),
                                     std::fmin(a, b),
                                     std::fmax(a, b),
                                     a < b ? a : b,
                                     a >= b ? a : b,
                                     a,
                                     sum > 0 ? (sum < 1 ? sum : 1) : 0,
                                     std::sqrt(std::fabs(a)),
                                     a / b};
    for (int k = 0; k < operations; ++k) {
      // Division is accurate to two units in the last place; everything else is rounded once.
      const double error = k >= 12 ? (sizeof(T) == 2 ? 0.01 : 0) : 0;
      expect_near(what, i * 100 + k, found[i * operations + k], float(rounded<T>(exact[k])), error);
    }
  }
}

__global__ void pairs_of_halves(const __half2* values, __half2* results, float* less, int count) {
  const int i = threadIdx.x;
  if (i >= count) return;
  const __half2 a = values[i];
  const __half2 b = values[(i + 1) % count];
  results[i] = __hfma2(a, b, __hadd2(__hmul2(a, a), __hsub2(a, b)));
  const __half2 smaller = __hlt2(a, b);
  less[i] = __low2float(smaller) + 2 * __high2float(smaller);
}

void expect_pairs() {
  constexpr int count = 64;
  std::vector<__half2> values;
  for (int i = 0; i < count; ++i) {
    values.push_back(__floats2half2_rn(float(i % 13) / 4 - 1, float(i % 7) / 8));
  }
  __half2* memory = on_device(values);
  __half2* results = nullptr;
  float* less = nullptr;
  MUST(cudaMalloc(&results, count * sizeof(__half2)));
  MUST(cudaMalloc(&less, count * sizeof(float)));
  pairs_of_halves<<<1, 64>>>(memory, results, less, count);
  MUST(cudaGetLastError());
  const auto found = on_host(results, count);
  const auto found_less = on_host(less, count);
  const auto value = [](float a, float b) {
    const auto in_half = [](float x) { return __half2float(__float2half_rn(x)); };
    return in_half(a * b + in_half(in_half(a * a) + in_half(a - b)));
  };
  for (int i = 0; i < count; ++i) {
    const __half2 a = values[i];
    const __half2 b = values[(i + 1) % count];
    expect_near("low", i, __low2float(found[i]), value(__low2float(a), __low2float(b)));
    expect_near("high", i, __high2float(found[i]), value(__high2float(a), __high2float(b)));
    const int smaller = (__low2float(a) < __low2float(b) ? 1 : 0) +
                        (__high2float(a) < __high2float(b) ? 2 : 0);
    expect_near("less", i, found_less[i], smaller);
  }
}

int main() {
  expect_all<__half>("half");
  expect_all<__nv_bfloat16>("bfloat16");
  expect_pairs();
  return 0;
}
