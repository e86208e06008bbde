// SPDX-License-Identifier: Apache-2.0
// With VMM_SPILL, memory that calls name moves to the device, and memory that no call has named for
// a long time moves out.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "hook_sim/doors.hpp"
#include "hook_sim/told.hpp"
#include "support/kernels.hpp"

namespace cuvmm::test {
namespace {

// Leaves a quarter of the device free to work with.
constexpr Size block = 192 * MiB;

class PlacedByUse : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const spill = std::getenv("VMM_SPILL");
    if (spill == nullptr || std::string{spill} == "off") GTEST_SKIP() << "nothing is spilled";
    if (std::getenv("VMM_MODE") != std::string{"vmm"}) GTEST_SKIP() << "nothing is served";
    open_driver();
    through_door<Call::cuInit>(0u);
    ASSERT_EQ(through_door<Call::cuDevicePrimaryCtxRetain>(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(through_door<Call::cuCtxSetCurrent>(context_), CUDA_SUCCESS);
    kernels_.emplace();
  }

  static CUdeviceptr given(std::uint32_t word) {
    CUdeviceptr address = 0;
    EXPECT_EQ(through_door<Call::cuMemAlloc_v2>(&address, block), CUDA_SUCCESS);
    EXPECT_EQ(through_door<Call::cuMemsetD32_v2>(address, word, block / 4), CUDA_SUCCESS);
    return address;
  }
  static Size bytes_near(CUdeviceptr address) {
    Size near = 0;
    for (const HeldChunk& one : Engine::get()->serving()->memory.holdings().chunks(0)) {
      const bool is_ours = one.address >= address && one.address < address + block;
      if (is_ours && residency(one.where, 0) == Residency::Near) near += one.size;
    }
    return near;
  }
  static void expect_word(CUdeviceptr address, std::uint32_t word) {
    for (const Size at : {Size{0}, block / 2, block - 4}) {
      std::uint32_t there = 0;
      EXPECT_EQ(through_door<Call::cuMemcpyDtoH_v2>(&there, address + at, sizeof there),
                CUDA_SUCCESS);
      EXPECT_EQ(there, word);
    }
  }

  // Of two blocks one lies far. Uses that one, and expects the two to change places.
  void expect_to_come_in(const std::function<void(CUdeviceptr)>& use) {
    const CUdeviceptr first = given(1);
    const CUdeviceptr second = given(2);
    const bool first_is_far = bytes_near(first) < bytes_near(second);
    const CUdeviceptr hot = first_is_far ? first : second;
    const CUdeviceptr cold = first_is_far ? second : first;
    const Size before = bytes_near(hot);
    ASSERT_LT(before, block / 2);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    while (bytes_near(hot) <= before && std::chrono::steady_clock::now() < until) {
      for (int times = 0; times < 16; ++times) use(hot);  // each use names only its first address
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
    }
    EXPECT_GT(bytes_near(hot), before);
    expect_word(cold, first_is_far ? 2 : 1);
    expect_word(hot, first_is_far ? 1 : 2);
    EXPECT_EQ(through_door<Call::cuMemFree_v2>(first), CUDA_SUCCESS);
    EXPECT_EQ(through_door<Call::cuMemFree_v2>(second), CUDA_SUCCESS);
  }

  CUcontext context_ = nullptr;
  std::optional<Kernels> kernels_;
};

TEST_F(PlacedByUse, QueriesAnswerDeviceMemory) {
  const CUdeviceptr first = given(1);
  const CUdeviceptr second = given(2);
  ASSERT_LT(bytes_near(first) + bytes_near(second), 2 * block);
  for (const CUdeviceptr address : {first, second}) {
    expect_to_be_told_of_device_memory(address);
    EXPECT_EQ(through_door<Call::cuMemFree_v2>(address), CUDA_SUCCESS);
  }
}

TEST_F(PlacedByUse, MemoryNamedByCopiesMovesIn) {
  expect_to_come_in([](CUdeviceptr address) {
    std::uint32_t word = 0;
    EXPECT_EQ(through_door<Call::cuMemcpyDtoH_v2>(&word, address + 8, sizeof word), CUDA_SUCCESS);
  });
}

TEST_F(PlacedByUse, MemoryNamedByKernelsMovesIn) {
  const CUfunction kernel = kernels_->add_one;
  expect_to_come_in([&](CUdeviceptr address) {
    std::uint32_t none = 0;
    void* parameters[] = {&address, &none};
    EXPECT_EQ(through_door<Call::cuLaunchKernel>(kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u,
                                                 CUstream{nullptr}, static_cast<void**>(parameters),
                                                 static_cast<void**>(nullptr)),
              CUDA_SUCCESS);
  });
}

TEST_F(PlacedByUse, MemoryNamedInPackedParametersMovesIn) {
  const CUfunction kernel = kernels_->add_one;
  expect_to_come_in([&](CUdeviceptr address) {
    struct {
      CUdeviceptr address;
      std::uint32_t count;
      std::uint32_t padding;
    } bytes{address, 0, 0};
    std::size_t size = sizeof bytes;
    void* list[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &bytes, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                    CU_LAUNCH_PARAM_END};
    EXPECT_EQ(
        through_door<Call::cuLaunchKernel>(kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, CUstream{nullptr},
                                           static_cast<void**>(nullptr), static_cast<void**>(list)),
        CUDA_SUCCESS);
  });
}

}  // namespace
}  // namespace cuvmm::test
