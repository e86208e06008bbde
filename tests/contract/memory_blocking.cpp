// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc and cuMemFree. free_waits_for_work.cpp has when a free waits for work.
#include <thread>

#include "streams_support.hpp"
#include "support/child.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

class BlockingMemory : public DriverContract {};

CUresult allocate(Size size) {
  CUdeviceptr address = 0;
  const CUresult answer = driver().cuMemAlloc(&address, size);
  if (answer == CUDA_SUCCESS) {
    EXPECT_CUDA(driver().cuMemFree(address));
  }
  return answer;
}

TEST_F(BlockingMemory, HoldsWhatWasWritten) {
  auto block = given_blocking(3 * MiB + 4);
  fill_pattern(block.address(), block.size(), 61);
  expect_pattern(block.address(), block.size(), 61);
}

TEST_F(BlockingMemory, OfOneByteIsMemory) {
  auto block = given_blocking(1);
  const char byte = 42;
  write(block.address(), &byte, 1);
  EXPECT_EQ(read(block.address(), 1)[0], std::byte{42});
}

TEST_F(BlockingMemory, OfNothingIsRefused) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, allocate(0));
}

TEST_F(BlockingMemory, IsFreedWithoutACurrentContext) {
  CUdeviceptr address = 0;
  ASSERT_CUDA(driver().cuMemAlloc(&address, 4096));
  EXPECT_CUDA(without_a_context([&] { return driver().cuMemFree(address); }));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFree(address));
}

TEST_F(BlockingMemory, WithoutAnOutputIsRefused) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemAlloc(nullptr, 1024));
}

TEST_F(BlockingMemory, BeyondTheCardIsOutOfMemory) {
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, allocate(memory_info().total + 1));
}

TEST_F(BlockingMemory, OfTheLargestPossibleSizeIsOutOfMemory) {
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, allocate(~Size{0}));
}

TEST_F(BlockingMemory, RefusedLeavesFreeMemoryAsItWas) {
  const Size free_before = memory_info().free;
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, allocate(memory_info().total + 1));
  EXPECT_EQ(memory_info().free, free_before);
}

TEST_F(BlockingMemory, IsAlignedToAtLeast256Bytes) {
  auto one = given_blocking(1);
  auto two = given_blocking(300);
  auto three = given_blocking(5 * MiB + 1);
  EXPECT_EQ(one.address() % 256, 0u);
  EXPECT_EQ(two.address() % 256, 0u);
  EXPECT_EQ(three.address() % 256, 0u);
}

TEST_F(BlockingMemory, OfManySizesNeverOverlaps) {
  auto one = given_blocking(1000);
  auto two = given_blocking(1 * MiB);
  auto three = given_blocking(3 * MiB);
  fill_pattern(one.address(), one.size(), 1);
  fill_pattern(two.address(), two.size(), 2);
  fill_pattern(three.address(), three.size(), 3);
  expect_pattern(one.address(), one.size(), 1);
  expect_pattern(two.address(), two.size(), 2);
  expect_pattern(three.address(), three.size(), 3);
}

TEST_F(BlockingMemory, FreedAtNullDoesNothing) {
  EXPECT_CUDA(driver().cuMemFree(0));
}

TEST_F(BlockingMemory, FreedTwiceIsRefused) {
  auto block = given_blocking(4 * MiB);
  const CUdeviceptr address = block.forget();
  ASSERT_CUDA(driver().cuMemFree(address));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFree(address));
}

TEST_F(BlockingMemory, FreedInTheMiddleIsRefused) {
  auto large = given_blocking(4 * MiB);
  auto small = given_blocking(4 * KiB);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFree(large.address() + 2 * MiB));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFree(small.address() + 1 * KiB));
}

TEST_F(BlockingMemory, ThatNeverWasCannotBeFreed) {
  int on_the_stack = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemFree(reinterpret_cast<CUdeviceptr>(&on_the_stack)));
}

TEST_F(BlockingMemory, FreesNoMappings) {
  auto mapped = given_mapped(1, granularity());
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFree(mapped.address()));
  EXPECT_CUDA(driver().cuMemsetD8(mapped.address(), 1, mapped.size()));
  EXPECT_CUDA(synchronize());
}

TEST_F(BlockingMemory, IsFreeMemoryAgainOnceFreed) {
  const Size free_before = memory_info().free;
  {
    auto block = given_blocking(256 * MiB);
    EXPECT_EQ(memory_info().free, free_before - 256 * MiB);
  }
  EXPECT_EQ(memory_info().free, free_before);
}

// The size of a block depends on what other blocks have left over, so this runs in a process that
// has no other blocks.
CHILD_ROLE(counts_what_blocks_take) {
  PrimaryContext context;
  const Size at_first = memory_info().free;
  auto small = given_blocking(1 * KiB);
  EXPECT_EQ(memory_info().free, at_first - 2 * MiB);
  auto shares = given_blocking(1 * KiB);
  EXPECT_EQ(memory_info().free, at_first - 2 * MiB);
  auto large = given_blocking(3 * MiB);
  EXPECT_EQ(memory_info().free, at_first - 6 * MiB);
}

TEST_F(BlockingMemory, TakesWholeGranulesAndSharesThemBetweenSmallBlocks) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  EXPECT_EQ(run_child("counts_what_blocks_take"), 0);
}

TEST_F(BlockingMemory, CanFillNearlyTheWholeCard) {
  const Size most = round_down(memory_info().free - 64 * MiB, granularity());
  EXPECT_CUDA(allocate(most));
}

TEST_F(BlockingMemory, NeedsACurrentContext) {
  CUdeviceptr address = 0;
  CUresult answer = CUDA_SUCCESS;
  std::thread{[&] { answer = driver().cuMemAlloc(&address, 1024); }}.join();
  EXPECT_ANSWER(CUDA_ERROR_INVALID_CONTEXT, answer);
}

TEST_F(BlockingMemory, IsFreedByAnyThread) {
  auto block = given_blocking(4 * MiB);
  CUresult answer = CUDA_ERROR_UNKNOWN;
  std::thread{[&] {
    PrimaryContext context;
    answer = block.free();
  }}.join();
  EXPECT_CUDA(answer);
}

TEST_F(BlockingMemory, OfOneContextIsFreedInAnother) {
  OwnContext own;
  auto block = given_blocking(4 * MiB);
  own.leave();
  EXPECT_CUDA(block.free());
}

TEST_F(BlockingMemory, OfOneContextIsMemoryToAnother) {
  OwnContext own;
  auto block = given_blocking(4 * MiB);
  fill_pattern(block.address(), block.size(), 62);
  GIVEN(synchronize());
  own.leave();
  expect_pattern(block.address(), block.size(), 62);
}

TEST_F(BlockingMemory, EndsWithItsContext) {
  const Size free_before = memory_info().free;
  OwnContext own;
  auto block = given_blocking(256 * MiB);
  own.leave();
  ASSERT_CUDA(own.destroy());
  EXPECT_EQ(memory_info().free, free_before);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFree(block.forget()));
}

TEST_F(BlockingMemory, InRowsHasAPitchThatFits) {
  CUdeviceptr address = 0;
  size_t pitch = 0;
  ASSERT_CUDA(driver().cuMemAllocPitch(&address, &pitch, 1000, 10, 4));
  EXPECT_GE(pitch, 1000u);
  EXPECT_EQ(pitch % static_cast<size_t>(attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT)),
            0u);
  EXPECT_CUDA(driver().cuMemsetD2D8(address, pitch, 7, 1000, 10));
  EXPECT_EQ(read(address + 9 * pitch + 999, 1)[0], std::byte{7});
  EXPECT_CUDA(driver().cuMemFree(address));
}

TEST_F(BlockingMemory, InRowsTakesElementsOfFourEightOrSixteenBytesOnly) {
  CUdeviceptr address = 0;
  size_t pitch = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemAllocPitch(&address, &pitch, 1000, 10, 5));
}

TEST_F(BlockingMemory, InNoRowsIsRefused) {
  CUdeviceptr address = 0;
  size_t pitch = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemAllocPitch(&address, &pitch, 0, 10, 4));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemAllocPitch(&address, &pitch, 1000, 0, 4));
}

TEST_F(BlockingMemory, InRowsWhoseSizeOverflowsIsRefused) {
  CUdeviceptr address = 0;
  size_t pitch = 0;
  const CUresult answer =
      driver().cuMemAllocPitch(&address, &pitch, Size{1} << 40, Size{1} << 40, 4);
  EXPECT_TRUE(answer == CUDA_ERROR_INVALID_VALUE || answer == CUDA_ERROR_OUT_OF_MEMORY)
      << name_of(answer);
}

}  // namespace
}  // namespace cuvmm::test
