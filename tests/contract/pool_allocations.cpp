// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocations: which streams may use them when, and how they are freed.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class PoolAllocations : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  }
};

constexpr Size block = 64 * MiB;

TEST_F(PoolAllocations, AnAllocationHoldsWhatItsStreamWrites) {
  const GivenStream stream;
  const CUdeviceptr memory = given_async(1 * MiB, stream);
  ASSERT_CUDA(driver().cuMemsetD32Async(memory, 6, 1 * MiB / 4, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(all_words_are(memory, 1 * MiB / 4, 6));

  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(PoolAllocations, AnAllocationBehindSlowWorkReturnsItsAddressAtOnce) {
  const GivenStream stream;
  SlowWork work{kernels(), stream};

  const CUdeviceptr memory = given_async(1 * MiB, stream);

  EXPECT_NE(memory, 0u);
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));
  work.end();
}

TEST_F(PoolAllocations, AnotherStreamMayUseItAfterAnEvent) {
  const GivenStream allocating;
  const GivenStream using_it;
  const GivenEvent allocated;
  SlowWork work{kernels(), allocating};
  const CUdeviceptr memory = given_async(1 * MiB, allocating);
  ASSERT_CUDA(driver().cuEventRecord(allocated, allocating));
  ASSERT_CUDA(driver().cuStreamWaitEvent(using_it, allocated, 0));
  ASSERT_CUDA(driver().cuMemsetD32Async(memory, 3, 256, using_it));

  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(using_it));

  EXPECT_TRUE(all_words_are(memory, 256, 3));
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, using_it));
  EXPECT_CUDA(driver().cuStreamSynchronize(using_it));
}

TEST_F(PoolAllocations, UsedBytesFallWhenTheFreeIsCalled) {
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr memory = given_from(pool, block, stream);
  EXPECT_EQ(used(pool), block);
  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(used(pool), 0u);
}

TEST_F(PoolAllocations, TheStreamSaysWhichContextIsMeantIfNoneIsCurrent) {
  const GivenStream stream;
  CUdeviceptr memory = 0;
  ASSERT_CUDA(without_a_context([&] { return driver().cuMemAllocAsync(&memory, block, stream); }));
  ASSERT_CUDA(driver().cuMemsetD32Async(memory, 5, 256, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_TRUE(all_words_are(memory, 256, 5));
  EXPECT_CUDA(without_a_context([&] { return driver().cuMemFreeAsync(memory, stream); }));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFreeAsync(memory, stream));
}

TEST_F(PoolAllocations, ABlockMayBeFreedOnAnotherStream) {
  const GivenStream allocating;
  const GivenStream freeing;
  const GivenPool pool;
  const CUdeviceptr memory = given_from(pool, block, allocating);
  ASSERT_CUDA(driver().cuStreamSynchronize(allocating));

  EXPECT_CUDA(driver().cuMemFreeAsync(memory, freeing));

  EXPECT_CUDA(driver().cuStreamSynchronize(freeing));
  EXPECT_EQ(used(pool), 0u);
}

TEST_F(PoolAllocations, ABlockingFreeEndsAnAsyncAllocation) {
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr memory = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_CUDA(driver().cuMemFree(memory));

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFree(memory));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFreeAsync(memory, stream));
}

// Measured on 580.159, odd as it is: a program that watches the mark must see the same under cuvmm.
TEST_F(PoolAllocations, ABlockingFreeStillCountsAsUsed) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr memory = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  ASSERT_CUDA(driver().cuMemFree(memory));

  EXPECT_EQ(used(pool), block);
}

TEST_F(PoolAllocations, ASecondFreeIsRefused) {
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr memory = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFreeAsync(memory, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFreeAsync(memory, stream));
}

TEST_F(PoolAllocations, AnInnerAddressIsNotFreed) {
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr memory = given_from(pool, block, stream);

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFreeAsync(memory + 1 * MiB, stream));

  EXPECT_EQ(used(pool), block);
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

// Measured: cuMemAlloc, in contrast, refuses it.
TEST_F(PoolAllocations, AnAllocationOfNothingIsTheNullAddress) {
  const GivenStream stream;
  CUdeviceptr memory = 1;
  EXPECT_CUDA(driver().cuMemAllocAsync(&memory, 0, stream));
  EXPECT_EQ(memory, 0u);
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));
}

TEST_F(PoolAllocations, BeyondTheCardIsOutOfMemoryAndThePoolStaysUsable) {
  const GivenStream stream;
  const GivenPool pool;
  CUdeviceptr memory = 0;

  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY,
                driver().cuMemAllocFromPoolAsync(&memory, 2 * memory_info().total, pool, stream));

  memory = given_from(pool, 1 * MiB, stream);
  EXPECT_CUDA(driver().cuMemsetD8Async(memory, 1, 1 * MiB, stream));
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(PoolAllocations, AllocationsOutliveTheirDestroyedPool) {
  const GivenStream stream;
  GivenPool pool;
  const CUdeviceptr memory = given_from(pool, 4 * MiB, stream);
  ASSERT_CUDA(driver().cuMemsetD32Async(memory, 8, 256, stream));

  ASSERT_CUDA(pool.destroy());

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_TRUE(all_words_are(memory, 256, 8));
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(PoolAllocations, TheDefaultStreamAllocatesToo) {
  const CUdeviceptr memory = given_async(1 * MiB, default_stream);
  EXPECT_CUDA(driver().cuMemsetD8(memory, 1, 1 * MiB));
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, default_stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(default_stream));
}

TEST_F(PoolAllocations, ThePerThreadFlavourAllocatesOnTheThreadsOwnStream) {
  CUdeviceptr memory = 0;
  ASSERT_CUDA(driver().cuMemAllocAsync_per_thread(&memory, 1 * MiB, default_stream));
  EXPECT_CUDA(driver().cuMemsetD8Async(memory, 1, 1 * MiB, per_thread_stream));
  EXPECT_CUDA(driver().cuMemFreeAsync_per_thread(memory, default_stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(per_thread_stream));
}

TEST_F(PoolAllocations, ABoundedPoolRefusesMore) {
  const GivenStream stream;
  const GivenPool pool{CU_MEM_HANDLE_TYPE_NONE, block};
  CUdeviceptr more = 0;
  const CUdeviceptr memory = given_from(pool, block, stream);

  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY,
                driver().cuMemAllocFromPoolAsync(&more, block, pool, stream));

  EXPECT_CUDA(driver().cuMemFreeAsync(memory, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace cuvmm::test
