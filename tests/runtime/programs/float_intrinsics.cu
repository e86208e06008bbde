// SPDX-License-Identifier: Apache-2.0
// Approximating intrinsics (__sinf and the like), within the errors that the programming guide
// states, and intrinsics that round in a given direction.
#include <cfenv>
#include <cstring>

#include "must.cuh"

struct Results {
  float sine, cosine, exponential, logarithm, logarithm2, power, quotient, root, reciprocal;
  float down, up, toward_zero, fused, saturated;
  double double_down, double_up;
  int to_int_nearest, to_int_down;
  unsigned bits;
};

__global__ void evaluate(const float* values, Results* results, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float x = values[i];
  Results& r = results[i];
  r.sine = __sinf(x);
  r.cosine = __cosf(x);
  r.exponential = __expf(x);
  r.logarithm = __logf(x + 4);
  r.logarithm2 = __log2f(x + 4);
  r.power = __powf(x + 4, 1.5F);
  r.quotient = __fdividef(x, 7.0F);
  r.root = rsqrtf(x + 4);
  r.reciprocal = __frcp_rn(x + 4);
  r.down = __fadd_rd(x, 1e-9F);
  r.up = __fadd_ru(x, 1e-9F);
  r.toward_zero = __fmul_rz(x, 1.1F);
  r.fused = __fmaf_rn(x, x, 1.0F);
  r.saturated = __saturatef(x);
  r.double_down = __ddiv_rd(x, 3.0);
  r.double_up = __ddiv_ru(x, 3.0);
  r.to_int_nearest = __float2int_rn(x);
  r.to_int_down = __float2int_rd(x);
  r.bits = __float_as_uint(x);
}

int main() {
  constexpr int count = 100;
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(float(i) * 0.0613F - 3.0F);
  float* memory = on_device(values);
  Results* results = nullptr;
  MUST(cudaMalloc(&results, count * sizeof(Results)));
  evaluate<<<1, 128>>>(memory, results, count);
  MUST(cudaGetLastError());
  const auto found = on_host(results, count);
  for (int i = 0; i < count; ++i) {
    volatile float x = values[i];
    const Results& r = found[i];
    expect_near("sine", i, r.sine, std::sin(x), 1e-6);
    expect_near("cosine", i, r.cosine, std::cos(x), 1e-6);
    expect_near("exponential", i, r.exponential, std::exp(x), 1e-6);
    expect_near("logarithm", i, r.logarithm, std::log(x + 4), 1e-6);
    expect_near("logarithm2", i, r.logarithm2, std::log2(x + 4), 1e-6);
    expect_near("power", i, r.power, std::pow(x + 4, 1.5F), 2e-6);
    expect_near("quotient", i, r.quotient, x / 7.0F, 1e-6);
    expect_near("root", i, r.root, 1.0F / std::sqrt(x + 4), 1e-6);
    expect_near("reciprocal", i, r.reciprocal, 1.0F / (x + 4));
    expect_near("fused", i, r.fused, std::fma(float(x), float(x), 1.0F));
    expect_near("saturated", i, r.saturated, x > 0 ? (x < 1 ? float(x) : 1.0F) : 0.0F);
    volatile float small = 1e-9F;
    volatile float factor = 1.1F;
    volatile double three = 3.0;
    std::fesetround(FE_DOWNWARD);
    volatile float down = x + small;
    volatile double double_down = double(x) / three;
    std::fesetround(FE_UPWARD);
    volatile float up = x + small;
    volatile double double_up = double(x) / three;
    std::fesetround(FE_TOWARDZERO);
    volatile float toward_zero = x * factor;
    std::fesetround(FE_TONEAREST);
    expect_near("down", i, r.down, down);
    expect_near("up", i, r.up, up);
    expect_near("toward zero", i, r.toward_zero, toward_zero);
    expect_near("double down", i, r.double_down, double_down);
    expect_near("double up", i, r.double_up, double_up);
    expect_near("nearest", i, r.to_int_nearest, std::nearbyint(x));
    expect_near("floor", i, r.to_int_down, std::floor(x));
    unsigned bits = 0;
    const float value = x;
    std::memcpy(&bits, &value, sizeof bits);
    expect_near("bits", i, r.bits, bits);
  }
  return 0;
}
