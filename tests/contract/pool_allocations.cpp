// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocations: what may be used when, what is reused, what is given back.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class PoolAllocations : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  }
  static Size used(CUmemoryPool pool) { return pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }
  static Size reserved(CUmemoryPool pool) {
    return pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  }
  static void keep_everything(CUmemoryPool pool) {
    GIVEN(set_pool_bytes(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, unlimited));
  }
  static void allow(CUmemoryPool pool, int follow_events, int opportunistic, int internal) {
    GIVEN(driver().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                         &follow_events));
    GIVEN(driver().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                         &opportunistic));
    GIVEN(driver().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                                         &internal));
  }
};

// Larger than what any pool keeps beside its allocations, so that reuse shows in the counters.
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

TEST_F(PoolAllocations, AFreedBlockIsReusedOnItsStreamWithoutWaiting) {
  const GivenStream stream;
  const GivenPool pool;
  SlowWork work{kernels(), stream};
  const CUdeviceptr first = given_from(pool, block, stream);
  const Size reserved_for_one = reserved(pool);
  ASSERT_CUDA(driver().cuMemFreeAsync(first, stream));

  const CUdeviceptr second = given_from(pool, block, stream);

  EXPECT_EQ(second, first);
  EXPECT_EQ(reserved(pool), reserved_for_one);
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  EXPECT_CUDA(driver().cuMemFreeAsync(second, stream));
  work.end();
}

TEST_F(PoolAllocations, AReusedBlockIsWrittenOnlyAfterItsFormerUse) {
  const GivenStream stream;
  const GivenPool pool;
  PinnedWords seen{1};
  const CUdeviceptr first = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuMemsetD32Async(first, 1, 1, stream));
  ASSERT_CUDA(driver().cuMemcpyDtoHAsync(seen.data(), first, 4, stream));
  ASSERT_CUDA(driver().cuMemFreeAsync(first, stream));
  const CUdeviceptr second = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuMemsetD32Async(second, 2, 1, stream));

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(seen[0], 1u);
  EXPECT_EQ(read_word(second), 2u);
  EXPECT_CUDA(driver().cuMemFreeAsync(second, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(PoolAllocations, AnotherStreamReusesABlockThatItWaitedForByAnEvent) {
  const GivenStream freeing;
  const GivenStream allocating;
  const GivenEvent freed;
  const GivenPool pool;
  allow(pool, 1, 0, 0);
  SlowWork work{kernels(), freeing};
  const CUdeviceptr first = given_from(pool, block, freeing);
  const Size reserved_for_one = reserved(pool);
  ASSERT_CUDA(driver().cuMemFreeAsync(first, freeing));
  ASSERT_CUDA(driver().cuEventRecord(freed, freeing));
  ASSERT_CUDA(driver().cuStreamWaitEvent(allocating, freed, 0));

  const CUdeviceptr second = given_from(pool, block, allocating);

  EXPECT_EQ(reserved(pool), reserved_for_one);
  EXPECT_CUDA(driver().cuMemFreeAsync(second, allocating));
  work.end();
}

TEST_F(PoolAllocations, WithoutAnyReuseAllowedAnotherStreamGetsOtherMemory) {
  const GivenStream freeing;
  const GivenStream allocating;
  const GivenPool pool;
  allow(pool, 0, 0, 0);
  keep_everything(pool);
  SlowWork work{kernels(), freeing};
  const CUdeviceptr first = given_from(pool, block, freeing);
  const Size reserved_for_one = reserved(pool);
  ASSERT_CUDA(driver().cuMemFreeAsync(first, freeing));

  const CUdeviceptr second = given_from(pool, block, allocating);

  EXPECT_NE(second, first);
  EXPECT_GT(reserved(pool), reserved_for_one);
  EXPECT_CUDA(driver().cuMemFreeAsync(second, allocating));
  work.end();
}

TEST_F(PoolAllocations, AFreeThatHasRunMayBeReusedOpportunistically) {
  const GivenStream freeing;
  const GivenStream allocating;
  const GivenPool pool;
  allow(pool, 0, 1, 0);
  keep_everything(pool);
  const CUdeviceptr first = given_from(pool, block, freeing);
  const Size reserved_for_one = reserved(pool);
  ASSERT_CUDA(driver().cuMemFreeAsync(first, freeing));
  ASSERT_CUDA(driver().cuStreamSynchronize(freeing));

  const CUdeviceptr second = given_from(pool, block, allocating);

  EXPECT_EQ(reserved(pool), reserved_for_one);
  EXPECT_CUDA(driver().cuMemFreeAsync(second, allocating));
  EXPECT_CUDA(driver().cuStreamSynchronize(allocating));
}

TEST_F(PoolAllocations, AnInternalDependencyOrdersTheNewOwnerBehindTheOld) {
  const GivenStream freeing;
  const GivenStream allocating;
  const GivenPool pool;
  allow(pool, 0, 0, 1);
  const CUdeviceptr first = given_from(pool, block, freeing);
  ASSERT_CUDA(driver().cuStreamSynchronize(freeing));
  SlowWork work{kernels(), freeing};
  PinnedWords seen{1};
  ASSERT_CUDA(driver().cuMemsetD32Async(first, 5, 1, freeing));
  ASSERT_CUDA(driver().cuMemcpyDtoHAsync(seen.data(), first, 4, freeing));
  ASSERT_CUDA(driver().cuMemFreeAsync(first, freeing));

  // The pool may take the block and wait, or other memory and not: either way no byte is shared.
  const CUdeviceptr second = given_from(pool, block, allocating);
  ASSERT_CUDA(driver().cuMemsetD32Async(second, 9, 1, allocating));
  work.end();
  ASSERT_CUDA(synchronize());

  EXPECT_EQ(seen[0], 5u);
  EXPECT_EQ(read_word(second), 9u);
  EXPECT_CUDA(driver().cuMemFreeAsync(second, allocating));
  EXPECT_CUDA(driver().cuStreamSynchronize(allocating));
}

TEST_F(PoolAllocations, BelowTheThresholdMemoryIsKept) {
  const GivenStream stream;
  const GivenPool pool;
  keep_everything(pool);
  const CUdeviceptr memory = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_GE(reserved(pool), block);
}

TEST_F(PoolAllocations, AboveTheThresholdASynchronizeGivesMemoryBack) {
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr memory = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(reserved(pool), 0u);
}

TEST_F(PoolAllocations, TrimGivesUnusedMemoryBack) {
  const GivenStream stream;
  const GivenPool pool;
  keep_everything(pool);
  const CUdeviceptr kept = given_from(pool, block, stream);
  const CUdeviceptr freed = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuMemFreeAsync(freed, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  ASSERT_GE(reserved(pool), 2 * block);

  EXPECT_CUDA(driver().cuMemPoolTrimTo(pool, 0));

  EXPECT_GE(reserved(pool), block) << "what is in use stays";
  EXPECT_LT(reserved(pool), 2 * block);
  EXPECT_CUDA(driver().cuMemFreeAsync(kept, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_CUDA(driver().cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(reserved(pool), 0u);
}

TEST_F(PoolAllocations, TrimKeepsAsMuchAsItIsTold) {
  const GivenStream stream;
  const GivenPool pool;
  keep_everything(pool);
  const CUdeviceptr memory = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  const Size before = reserved(pool);

  EXPECT_CUDA(driver().cuMemPoolTrimTo(pool, before));

  EXPECT_EQ(reserved(pool), before);
}

TEST_F(PoolAllocations, TrimLeavesAFreeThatHasNotRun) {
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr memory = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));

  EXPECT_CUDA(driver().cuMemPoolTrimTo(pool, 0));

  EXPECT_GE(reserved(pool), block);
  work.end();
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

TEST_F(PoolAllocations, ABlockingFreeGivesAsyncMemoryBack) {
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr memory = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_CUDA(driver().cuMemFree(memory));

  EXPECT_EQ(used(pool), 0u);
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

// unmeasured: cuMemAllocAsync of nothing, taken to answer as cuMemAlloc does.
TEST_F(PoolAllocations, NothingCannotBeAllocated) {
  const GivenStream stream;
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemAllocAsync(&memory, 0, stream));
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
