// SPDX-License-Identifier: Apache-2.0
// Which memory a pool reuses, for which stream, and what it returns to the device.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class PoolReuse : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
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

// Larger than any memory that a pool keeps beside its allocations, so that reuse shows in the
// counters.
constexpr Size block = 64 * MiB;

TEST_F(PoolReuse, AFreedBlockIsReusedOnItsStreamWithoutWaiting) {
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

TEST_F(PoolReuse, AReusedBlockIsWrittenOnlyAfterItsFormerUse) {
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

TEST_F(PoolReuse, AnotherStreamReusesABlockThatItWaitedForByAnEvent) {
  // Several rounds, since a scheduler may have issued more or less of its queue.
  for (int round = 0; round < 20; ++round) {
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

    EXPECT_EQ(reserved(pool), reserved_for_one) << "round " << round;
    EXPECT_CUDA(driver().cuMemFreeAsync(second, allocating));
    work.end();
  }
}

TEST_F(PoolReuse, ManyPoolsOneAfterAnotherLeaveRoomForTheNext) {
  for (int round = 0; round < 300; ++round) {
    const GivenStream stream;
    const GivenPool pool;
    const CUdeviceptr memory = given_from(pool, block, stream);
    ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream)) << "round " << round;
    ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  }
}

TEST_F(PoolReuse, WithoutAnyReuseAllowedAnotherStreamGetsOtherMemory) {
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

// The pool looks at the last free alone, not at what an earlier holder's stream still has to do.
TEST_F(PoolReuse, ABlockIsReusedOnTheStreamThatFreedItLastWithoutAnyReuseAllowed) {
  const GivenStream first_stream;
  const GivenStream last_stream;
  const GivenEvent allocated;
  const GivenPool pool;
  allow(pool, 0, 0, 0);
  SlowWork work{kernels(), first_stream};
  const CUdeviceptr first = given_from(pool, block, first_stream);
  const Size reserved_for_one = reserved(pool);
  ASSERT_CUDA(driver().cuMemFreeAsync(first, first_stream));
  const CUdeviceptr second = given_from(pool, block, first_stream);
  ASSERT_CUDA(driver().cuEventRecord(allocated, first_stream));
  ASSERT_CUDA(driver().cuStreamWaitEvent(last_stream, allocated, 0));
  ASSERT_CUDA(driver().cuMemFreeAsync(second, last_stream));

  const CUdeviceptr third = given_from(pool, block, last_stream);

  EXPECT_EQ(reserved(pool), reserved_for_one);
  EXPECT_CUDA(driver().cuMemFreeAsync(third, last_stream));
  work.end();
}

TEST_F(PoolReuse, AFreeThatHasRunMayBeReusedOpportunistically) {
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

TEST_F(PoolReuse, AnInternalDependencyOrdersTheNewOwnerBehindTheOld) {
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

  // The pool may reuse the block and wait, or take other memory without waiting: in both cases no
  // byte is shared.
  const CUdeviceptr second = given_from(pool, block, allocating);
  ASSERT_CUDA(driver().cuMemsetD32Async(second, 9, 1, allocating));
  work.end();
  ASSERT_CUDA(synchronize());

  EXPECT_EQ(seen[0], 5u);
  EXPECT_EQ(read_word(second), 9u);
  EXPECT_CUDA(driver().cuMemFreeAsync(second, allocating));
  EXPECT_CUDA(driver().cuStreamSynchronize(allocating));
}

TEST_F(PoolReuse, BelowTheThresholdMemoryIsKept) {
  const GivenStream stream;
  const GivenPool pool;
  keep_everything(pool);
  const CUdeviceptr memory = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_GE(reserved(pool), block);
}

TEST_F(PoolReuse, AboveTheThresholdASynchronizeReleasesMemory) {
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr memory = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuMemFreeAsync(memory, stream));

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(reserved(pool), 0u);
}

TEST_F(PoolReuse, TrimReleasesUnusedMemory) {
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

TEST_F(PoolReuse, TrimKeepsAsMuchAsItIsTold) {
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

TEST_F(PoolReuse, TrimLeavesAFreeThatHasNotRun) {
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

TEST_F(PoolReuse, ABlockingFreeLetsThePoolReuseTheMemory) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenStream stream;
  const GivenPool pool;
  keep_everything(pool);
  const CUdeviceptr first = given_from(pool, block, stream);
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  const Size reserved_for_one = reserved(pool);
  ASSERT_CUDA(driver().cuMemFree(first));

  const CUdeviceptr second = given_from(pool, block, stream);

  EXPECT_EQ(reserved(pool), reserved_for_one);
  EXPECT_CUDA(driver().cuMemFreeAsync(second, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace cuvmm::test
