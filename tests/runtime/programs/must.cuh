// SPDX-License-Identifier: Apache-2.0
// Shared by the programs in this folder: each ends with status 0 if every result matches the
// host's, and otherwise reports the difference on standard error.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

inline void must(cudaError_t answer, const char* call, int line) {
  if (answer == cudaSuccess) return;
  std::fprintf(stderr, "line %d: %s: %s\n", line, call, cudaGetErrorString(answer));
  std::exit(1);
}
#define MUST(...) must((__VA_ARGS__), #__VA_ARGS__, __LINE__)

template <class T>
T* on_device(const std::vector<T>& values) {
  T* memory = nullptr;
  MUST(cudaMalloc(&memory, values.size() * sizeof(T)));
  MUST(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

template <class T>
std::vector<T> on_host(const T* memory, std::size_t count) {
  std::vector<T> values(count);
  MUST(cudaMemcpy(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

inline bool is_near(double found, double expected, double error) {
  if (std::isnan(expected)) return std::isnan(found);
  if (std::isinf(expected)) return found == expected;
  return std::fabs(found - expected) <= error * std::fmax(1.0, std::fabs(expected));
}

inline void expect_near(const char* what, std::size_t index, double found, double expected,
                        double error = 0) {
  if (is_near(found, expected, error)) return;
  std::fprintf(stderr, "%s[%zu]: %.17g instead of %.17g\n", what, index, found, expected);
  std::exit(1);
}

template <class T>
void expect_equal(const char* what, const std::vector<T>& found, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (found[i] == expected[i]) continue;
    std::fprintf(stderr, "%s[%zu]: %.17g instead of %.17g\n", what, i,
                 static_cast<double>(found[i]), static_cast<double>(expected[i]));
    std::exit(1);
  }
}

// The same numbers on every machine.
inline std::vector<unsigned> random_numbers(std::size_t count, unsigned seed) {
  std::vector<unsigned> values(count);
  for (unsigned& value : values) {
    seed = seed * 1664525U + 1013904223U;
    value = seed >> 8 ^ seed << 11;
  }
  return values;
}
