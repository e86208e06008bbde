// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#define EXPECT_RUNTIME(...) EXPECT_EQ((__VA_ARGS__), cudaSuccess)
#define ASSERT_RUNTIME(...) ASSERT_EQ((__VA_ARGS__), cudaSuccess)

namespace cuvmm::test {

inline std::vector<std::uint32_t> numbers(std::size_t count, std::uint32_t seed) {
  std::vector<std::uint32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = seed + static_cast<std::uint32_t>(i) * 2654435761U;
  }
  return values;
}

inline std::vector<std::uint32_t> read_back(const void* memory, std::size_t count) {
  std::vector<std::uint32_t> values(count);
  EXPECT_RUNTIME(cudaMemcpy(values.data(), memory, count * sizeof values[0], cudaMemcpyDefault));
  return values;
}

inline std::size_t bytes_of(const std::vector<std::uint32_t>& values) {
  return values.size() * sizeof values[0];
}

// Resets the devices to their state at process start.
class RuntimeTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (int device = 0; device < device_count(); ++device) {
      EXPECT_RUNTIME(cudaSetDevice(device));
      EXPECT_RUNTIME(cudaDeviceReset());
    }
    EXPECT_RUNTIME(cudaSetDevice(0));
  }
  static int device_count() {
    int count = 0;
    EXPECT_RUNTIME(cudaGetDeviceCount(&count));
    return count;
  }
};

}  // namespace cuvmm::test
