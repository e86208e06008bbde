// SPDX-License-Identifier: Apache-2.0
// Launches: how parameters reach a kernel, and which launches are refused.
#include <array>
#include <cstring>

#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class Launches : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    memory_ = std::make_unique<GivenBlocking>(4 * KiB);
    ASSERT_CUDA(driver().cuMemsetD8(memory_->address(), 0, 4 * KiB));
    ASSERT_CUDA(synchronize());
  }
  void TearDown() override {
    memory_.reset();
    DriverContract::TearDown();
  }
  CUdeviceptr memory() const { return memory_->address(); }

  std::array<std::uint64_t, 7> received() const {
    std::array<std::uint64_t, 7> words{};
    EXPECT_CUDA(driver().cuMemcpyDtoH(words.data(), memory(), sizeof words));
    return words;
  }

 private:
  std::unique_ptr<GivenBlocking> memory_;
};

constexpr std::array<std::uint64_t, 7> sent = {0xA1, 0xB2B3, 0xC4C5'C6C7, 0xD0D1'D2D3'D4D5'D6D7,
                                               11,   22,     33};

TEST_F(Launches, ParametersOfEverySizeArrive) {
  ASSERT_CUDA(launch(kernels().many_parameters, default_stream, Shape{1, 1}, std::uint8_t{0xA1},
                     std::uint16_t{0xB2B3}, std::uint32_t{0xC4C5'C6C7},
                     std::uint64_t{0xD0D1'D2D3'D4D5'D6D7}, ThreeWords{11, 22, 33}, memory()));
  ASSERT_CUDA(synchronize());

  EXPECT_EQ(received(), sent);
}

// The kernel's parameters as laid out in its parameter space.
struct Packed {
  std::uint8_t small = 0xA1;
  std::uint16_t medium = 0xB2B3;
  std::uint32_t word = 0xC4C5'C6C7;
  std::uint64_t wide = 0xD0D1'D2D3'D4D5'D6D7;
  ThreeWords three = {11, 22, 33};
  CUdeviceptr out = 0;
};
static_assert(offsetof(Packed, three) == 16 && offsetof(Packed, out) == 40);

TEST_F(Launches, ParametersArriveInOneBuffer) {
  Packed packed;
  packed.out = memory();
  size_t size = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};

  ASSERT_CUDA(driver().cuLaunchKernel(kernels().many_parameters, 1, 1, 1, 1, 1, 1, 0,
                                      default_stream, nullptr, extra));
  packed = {};
  ASSERT_CUDA(synchronize());

  EXPECT_EQ(received(), sent);
}

TEST_F(Launches, ParametersAreCopiedBeforeTheCallReturns) {
  const GivenStream stream;
  SlowWork work{kernels(), stream};
  CUdeviceptr address = memory();
  std::uint32_t value = 5;
  std::uint32_t count = 4;
  void* parameters[] = {&address, &value, &count, nullptr};

  ASSERT_CUDA(
      driver().cuLaunchKernel(kernels().fill, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  address = 0;
  value = 6;
  count = 1000;
  parameters[0] = nullptr;
  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(all_words_are(memory(), 4, 5));
  EXPECT_EQ(read_word(memory() + 16), 0u);
}

TEST_F(Launches, TheExtensibleLaunchTakesAConfiguration) {
  NEEDS_CALL(cuLaunchKernelEx);
  const GivenStream stream;
  CUdeviceptr address = memory();
  std::uint32_t value = 8;
  std::uint32_t count = 100;
  void* parameters[] = {&address, &value, &count, nullptr};
  CUlaunchConfig configuration{};
  configuration.gridDimX = configuration.gridDimY = configuration.gridDimZ = 1;
  configuration.blockDimX = 64;
  configuration.blockDimY = configuration.blockDimZ = 1;
  configuration.hStream = stream;

  ASSERT_CUDA(driver().cuLaunchKernelEx(&configuration, kernels().fill, parameters, nullptr));
  configuration = {};
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(all_words_are(memory(), 100, 8));
}

TEST_F(Launches, TheExtensibleLaunchTakesAttributes) {
  NEEDS_CALL(cuLaunchKernelEx);
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  const GivenStream stream;
  CUdeviceptr address = memory();
  std::uint32_t value = 9;
  std::uint32_t count = 100;
  void* parameters[] = {&address, &value, &count, nullptr};
  CUlaunchAttribute attributes[1] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[0].value.cooperative = 1;
  CUlaunchConfig configuration{};
  configuration.gridDimX = 2;
  configuration.gridDimY = configuration.gridDimZ = 1;
  configuration.blockDimX = 64;
  configuration.blockDimY = configuration.blockDimZ = 1;
  configuration.hStream = stream;
  configuration.attrs = attributes;
  configuration.numAttrs = 1;

  ASSERT_CUDA(driver().cuLaunchKernelEx(&configuration, kernels().fill, parameters, nullptr));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(all_words_are(memory(), 100, 9));
}

TEST_F(Launches, ACooperativeLaunchRuns) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  CUdeviceptr address = memory();
  std::uint32_t value = 3;
  std::uint32_t count = 50;
  void* parameters[] = {&address, &value, &count, nullptr};

  ASSERT_CUDA(driver().cuLaunchCooperativeKernel(kernels().fill, 2, 1, 1, 32, 1, 1, 0,
                                                 default_stream, parameters));
  ASSERT_CUDA(synchronize());

  EXPECT_TRUE(all_words_are(memory(), 50, 3));
}

TEST_F(Launches, ACooperativeLaunchThatDoesNotFitIsRefused) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  CUdeviceptr address = memory();
  std::uint32_t value = 3;
  std::uint32_t count = 50;
  void* parameters[] = {&address, &value, &count, nullptr};

  EXPECT_ANSWER(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
                driver().cuLaunchCooperativeKernel(kernels().fill, 1'000'000, 1, 1, 1024, 1, 1, 0,
                                                   default_stream, parameters));
}

TEST_F(Launches, ThePerThreadFlavourLaunchesOnTheThreadsOwnStream) {
  CUdeviceptr address = memory();
  std::uint32_t value = 2;
  std::uint32_t count = 10;
  void* parameters[] = {&address, &value, &count, nullptr};

  ASSERT_CUDA(driver().cuLaunchKernel_per_thread(kernels().fill, 1, 1, 1, 32, 1, 1, 0,
                                                 default_stream, parameters, nullptr));
  ASSERT_CUDA(driver().cuStreamSynchronize(per_thread_stream));

  EXPECT_TRUE(all_words_are(memory(), 10, 2));
}

TEST_F(Launches, GridsAndBlocksOfNothingAreRefused) {
  const CUfunction fill = kernels().fill;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, launch(fill, default_stream, Shape{0, 1}, memory(),
                                                 std::uint32_t{1}, std::uint32_t{1}));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, launch(fill, default_stream, Shape{1, 0}, memory(),
                                                 std::uint32_t{1}, std::uint32_t{1}));
}

TEST_F(Launches, ABlockBeyondTheDevicesLimitIsRefused) {
  const auto most = static_cast<unsigned>(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, launch(kernels().fill, default_stream, Shape{1, most + 1},
                                                 memory(), std::uint32_t{1}, std::uint32_t{1}));
}

TEST_F(Launches, BothKindsOfParametersAtOnceAreRefused) {
  Packed packed;
  packed.out = memory();
  size_t size = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  void* parameters[] = {&packed.small, &packed.medium, &packed.word, &packed.wide,
                        &packed.three, &packed.out,    nullptr};

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuLaunchKernel(kernels().many_parameters, 1, 1, 1, 1, 1, 1, 0,
                                        default_stream, parameters, extra));
}

TEST_F(Launches, NoFunctionIsRefused) {
  EXPECT_ANSWER(
      CUDA_ERROR_INVALID_HANDLE,
      driver().cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, default_stream, nullptr, nullptr));
}

TEST_F(Launches, AFunctionOfAnotherContextIsRefusedOnThisStream) {
  const GivenStream stream;
  const OwnContext other;
  const Kernels kernels_there;
  const Current back_in_the_primary_context{primary()};

  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, launch(kernels_there.fill, stream.get(), memory(),
                                                  std::uint32_t{1}, std::uint32_t{1}));
}

TEST_F(Launches, ParameterInformationHasOffsetsAndSizes) {
  NEEDS_CALL(cuFuncGetParamInfo);
  const CUfunction function = kernels().many_parameters;
  const std::size_t offsets[] = {0, 2, 4, 8, 16, 40};
  const std::size_t sizes[] = {1, 2, 4, 8, 24, 8};
  for (std::size_t i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    size_t offset = 99;
    size_t size = 99;
    EXPECT_CUDA(driver().cuFuncGetParamInfo(function, i, &offset, &size));
    EXPECT_EQ(offset, offsets[i]);
    EXPECT_EQ(size, sizes[i]);
  }
}

TEST_F(Launches, ParameterInformationEndsAtTheLast) {
  NEEDS_CALL(cuFuncGetParamInfo);
  size_t offset = 0;
  size_t size = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuFuncGetParamInfo(kernels().many_parameters, 6, &offset, &size));
}

TEST_F(Launches, TheSizeOutputOfParameterInformationIsOptional) {
  NEEDS_CALL(cuFuncGetParamInfo);
  size_t offset = 99;
  EXPECT_CUDA(driver().cuFuncGetParamInfo(kernels().many_parameters, 4, &offset, nullptr));
  EXPECT_EQ(offset, 16u);
}

}  // namespace
}  // namespace cuvmm::test
