// SPDX-License-Identifier: Apache-2.0
// When a pool's memory becomes available to others, and when it goes back to the device.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

constexpr Size given_back = 64 * MiB;

class PoolReturns : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  }
};

void free_on(CUstream stream, CUdeviceptr memory) {
  GIVEN(driver().cuMemFreeAsync(memory, stream));
}

TEST_F(PoolReturns, UsedCountsTheRequestedBytes) {
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr one = given_from(pool, 1, stream);
  const CUdeviceptr another = given_from(pool, 513, stream);

  EXPECT_EQ(used(pool), 514u);
  EXPECT_EQ(another - one, 512u) << "addresses are steps of 512 bytes";

  free_on(stream, one);
  free_on(stream, another);
  EXPECT_EQ(used(pool), 0u);
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(PoolReturns, NeighboursShareReservedMemory) {
  const GivenStream stream;
  const GivenPool pool;
  const CUdeviceptr small = given_from(pool, 1 * MiB, stream);
  const Size piece = reserved(pool);

  const CUdeviceptr large = given_from(pool, piece, stream);

  EXPECT_EQ(large, small + 1 * MiB);
  EXPECT_EQ(reserved(pool), 2 * piece);
  free_on(stream, small);
  free_on(stream, large);
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(PoolReturns, AQueryThatFindsTheWorkDoneReleasesNothing) {
  const GivenStream stream;
  const GivenPool pool;
  free_on(stream, given_from(pool, given_back, stream));
  while (driver().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
  }

  EXPECT_GE(reserved(pool), given_back);

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(reserved(pool), 0u);
}

TEST_F(PoolReturns, WaitingForAnotherStreamReleasesNothing) {
  const GivenStream freeing;
  const GivenStream other;
  const GivenPool pool;
  free_on(freeing, given_from(pool, given_back, freeing));

  ASSERT_CUDA(driver().cuStreamSynchronize(other));
  EXPECT_GE(reserved(pool), given_back);

  ASSERT_CUDA(driver().cuStreamSynchronize(freeing));
  EXPECT_EQ(reserved(pool), 0u);
}

TEST_F(PoolReturns, WaitingForAnEventBehindTheFreeReleases) {
  const GivenStream stream;
  const GivenEvent freed;
  const GivenPool pool;
  free_on(stream, given_from(pool, given_back, stream));
  ASSERT_CUDA(driver().cuEventRecord(freed, stream));

  ASSERT_CUDA(driver().cuEventSynchronize(freed));

  EXPECT_EQ(reserved(pool), 0u);
}

TEST_F(PoolReturns, TrimLeavesAFreeThatNobodyWaitedFor) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenStream stream;
  const GivenPool pool;
  keep_everything(pool);
  free_on(stream, given_from(pool, given_back, stream));

  ASSERT_CUDA(driver().cuMemPoolTrimTo(pool, 0));
  EXPECT_GE(reserved(pool), given_back);

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  ASSERT_CUDA(driver().cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(reserved(pool), 0u);
}

TEST_F(PoolReturns, ABlockingFreeServesAnyStreamAtOnce) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenStream busy;
  const GivenStream other;
  const GivenPool pool;
  const CUdeviceptr memory = given_from(pool, given_back, busy);
  SlowWork work{kernels(), busy};

  ASSERT_CUDA(driver().cuMemFree(memory));

  const CUdeviceptr again = given_from(pool, given_back, other);
  EXPECT_EQ(again, memory) << "a program that frees this way has waited for its work";
  work.end();
  free_on(other, again);
  EXPECT_CUDA(driver().cuStreamSynchronize(other));
}

TEST_F(PoolReturns, ABlockingStreamTakesWhatTheLegacyStreamFreed) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenPool pool;
  int off = 0;
  GIVEN(driver().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
  SlowWork work{kernels(), legacy_stream};
  const CUdeviceptr memory = given_from(pool, given_back, legacy_stream);
  free_on(legacy_stream, memory);

  const CUdeviceptr again = given_from(pool, given_back, blocking);

  EXPECT_EQ(again, memory);
  free_on(blocking, again);
  work.end();
}

TEST_F(PoolReturns, UnusedPoolMemoryServesOtherCallsOnAFullDevice) {
  const GivenStream stream;
  const GivenPool pool;
  keep_everything(pool);
  const Size most = round_down(memory_info().free / 10 * 7, 2 * MiB);
  free_on(stream, given_from(pool, most, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  ASSERT_GE(reserved(pool), most);

  CUdeviceptr blocking = 0;
  ASSERT_CUDA(driver().cuMemAlloc(&blocking, most));
  EXPECT_LT(reserved(pool), most);
  EXPECT_CUDA(driver().cuMemFree(blocking));

  free_on(stream, given_from(pool, most, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  const GivenChunk chunk = given_chunk(most);
  EXPECT_LT(reserved(pool), most);
}

// Holds whatever the pool's reuse attributes are, and although neither the stream nor the pool can
// be queried any more.
TEST_F(PoolReturns, MemoryOfADestroyedPoolServesOthersOnceItsWorkIsDone) {
  const Size most = round_down(memory_info().free / 10 * 7, 2 * MiB);
  const GivenStream busy;
  const GivenEvent done;
  SlowWork work{kernels(), busy};
  ASSERT_CUDA(driver().cuEventRecord(done, busy));
  {
    const GivenStream stream;
    const GivenPool pool;
    int off = 0;
    GIVEN(driver().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
    const CUdeviceptr memory = given_from(pool, most, stream);
    ASSERT_CUDA(driver().cuStreamWaitEvent(stream, done, 0));
    free_on(stream, memory);
  }
  work.end();
  ASSERT_CUDA(synchronize());

  const GivenChunk chunk = given_chunk(most);
}

TEST_F(PoolReturns, OnAFullDeviceAnotherStreamsFreeIsTakenAndWaitedForInOrder) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenStream freeing;
  const GivenStream allocating;
  const GivenPool pool;
  const Size most = round_down(memory_info().free / 10 * 7, 2 * MiB);
  const CUdeviceptr first = given_from(pool, most, freeing);
  SlowWork work{kernels(), freeing};
  free_on(freeing, first);

  const CUdeviceptr second = given_from(pool, most, allocating);

  EXPECT_EQ(second, first);
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(allocating));
  free_on(allocating, second);
  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(allocating));
}

TEST_F(PoolReturns, OnAFullDeviceWithoutInternalDependenciesThereIsNoMemory) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenStream freeing;
  const GivenStream allocating;
  const GivenPool pool;
  int off = 0;
  GIVEN(driver().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                                       &off));
  const Size most = round_down(memory_info().free / 10 * 7, 2 * MiB);
  const CUdeviceptr first = given_from(pool, most, freeing);
  SlowWork work{kernels(), freeing};
  free_on(freeing, first);
  CUdeviceptr second = 0;

  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY,
                driver().cuMemAllocFromPoolAsync(&second, most, pool, allocating));

  work.end();
}

TEST_F(PoolReturns, ReadAccessAloneIsNotGivenToAPool) {
  const GivenPool pool;
  const CUmemAccessDesc read = access(CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_ANSWER(CUDA_ERROR_NOT_SUPPORTED, driver().cuMemPoolSetAccess(pool, &read, 1));
}

}  // namespace
}  // namespace cuvmm::test
