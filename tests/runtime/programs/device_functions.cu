// SPDX-License-Identifier: Apache-2.0
// Functions that are called rather than inlined; structs by value; arrays in local memory; lambdas;
// switches; recursion through templates.
#include "must.cuh"

struct Vector {
  float x;
  float y;
  double weight;
  char tag;
};

__device__ __noinline__ Vector scaled(Vector v, float by) {
  v.x *= by;
  v.y *= by;
  v.weight += by;
  v.tag = static_cast<char>(v.tag + 1);
  return v;
}

__device__ __noinline__ int digit_sum(unsigned value) {
  int digits[10];
  int count = 0;
  while (value != 0) {
    digits[count++] = static_cast<int>(value % 10);
    value /= 10;
  }
  int sum = 0;
  for (int i = count - 1; i >= 0; --i) sum = sum * 2 + digits[i];
  return sum;
}

template <int n>
__device__ int power(int base) {
  return base * power<n - 1>(base);
}
template <>
__device__ int power<0>(int) {
  return 1;
}

__device__ __noinline__ int by_kind(int kind, int value) {
  switch (kind) {
    case 0:
      return value + 1;
    case 1:
      return value * 3;
    case 2:
      return value - 7;
    case 3:
      return value ^ 0x55;
    case 4:
      return -value;
    case 5:
      return value << 2;
    default:
      return value;
  }
}

template <class Function>
__global__ void apply(int* results, int count, Function function) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) results[i] = function(i);
}

__global__ void scale_all(Vector* vectors, int count, Vector offset) {
  const int i = threadIdx.x;
  if (i >= count) return;
  Vector v = scaled(vectors[i], 2.0F);
  v.x += offset.x;
  v.weight += offset.weight;
  vectors[i] = v;
}

template <class Function, class Expected>
void expect_applied(const char* what, Function function, Expected expected) {
  constexpr int count = 300;
  int* results = nullptr;
  MUST(cudaMalloc(&results, count * sizeof(int)));
  apply<<<2, 160>>>(results, count, function);
  MUST(cudaGetLastError());
  std::vector<int> wanted;
  for (int i = 0; i < count; ++i) wanted.push_back(expected(i));
  expect_equal(what, on_host(results, count), wanted);
  MUST(cudaFree(results));
}

int host_digit_sum(unsigned value) {
  std::vector<int> digits;
  for (; value != 0; value /= 10) digits.push_back(static_cast<int>(value % 10));
  int sum = 0;
  for (std::size_t i = digits.size(); i > 0; --i) sum = sum * 2 + digits[i - 1];
  return sum;
}

struct DigitSum {
  __device__ int operator()(int i) const { return digit_sum(static_cast<unsigned>(i) * 7919U); }
};
struct Power {
  __device__ int operator()(int i) const { return power<5>(i % 20); }
};
struct ByKind {
  __device__ int operator()(int i) const { return by_kind(i % 8, i); }
};

int main() {
  expect_applied("digit sum", DigitSum{},
                 [](int i) { return host_digit_sum(static_cast<unsigned>(i) * 7919U); });
  expect_applied("power", Power{}, [](int i) {
    const int base = i % 20;
    return base * base * base * base * base;
  });
  expect_applied("switch", ByKind{}, [](int i) {
    const int answers[] = {i + 1, i * 3, i - 7, i ^ 0x55, -i, i << 2, i, i};
    return answers[i % 8];
  });

  constexpr int count = 20;
  std::vector<Vector> vectors(count);
  for (int i = 0; i < count; ++i) vectors[i] = {float(i), float(i) / 2, 1.0 * i, char('a' + i)};
  Vector* memory = on_device(vectors);
  scale_all<<<1, 32>>>(memory, count, Vector{100, 0, 0.5, 0});
  MUST(cudaGetLastError());
  const auto found = on_host(memory, count);
  for (int i = 0; i < count; ++i) {
    expect_near("x", i, found[i].x, 2.0F * i + 100);
    expect_near("y", i, found[i].y, float(i));
    expect_near("weight", i, found[i].weight, i + 2.5);
    expect_near("tag", i, found[i].tag, 'a' + i + 1);
  }
  return 0;
}
