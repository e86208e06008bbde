// SPDX-License-Identifier: Apache-2.0
// Stream-ordered frees are work of their stream, and so are allocations of memory that is in use. A
// wait covers the work submitted before it began and none submitted later. Measured on an H100.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

constexpr Size ordered_size = 2 * MiB;

class StreamOperations : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  }
};

// Like SlowWork, but allocates its host memory beforehand: on a card cuMemHostAlloc waits for a
// cuMemFree in another thread, which waits for pending work. A test with several of these must end
// all of them before any goes out of scope.
class SlowWorkToCome {
 public:
  explicit SlowWorkToCome(const Kernels& kernels) : kernels_(kernels) {}
  ~SlowWorkToCome() {
    end();
    EXPECT_CUDA(synchronize());
    EXPECT_FALSE(flag_.given_up_on()) << "the test waited for work that only it could end";
  }
  SlowWorkToCome(const SlowWorkToCome&) = delete;
  SlowWorkToCome& operator=(const SlowWorkToCome&) = delete;
  void begin(CUstream stream) {
    const Shape one_thread{.grid = 1, .block = 1};
    GIVEN(launch(kernels_.wait_for_flag, stream, one_thread, flag_.address()));
  }
  void end() { flag_.set(); }

 private:
  const Kernels& kernels_;
  HostFlag flag_;
};

// Allocation --------------------------------------------------------------------------------------
//
// An allocation of memory that was freed behind pending work comes after that work. An allocation
// of new memory is not work on a card, but is on the simulated driver: no scenario depends on it.

TEST_F(StreamOperations, AllocationOfMemoryThatWasFreedBehindLegacyWorkWaitsForIt) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const CUdeviceptr freed = given_async(ordered_size, legacy_stream);
  ASSERT_CUDA(driver().cuStreamSynchronize(legacy_stream));
  SlowWork work{kernels(), legacy_stream};
  ASSERT_CUDA(driver().cuMemFreeAsync(freed, legacy_stream));

  const CUdeviceptr memory = given_async(ordered_size, blocking);

  if (memory == freed) {
    EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(blocking));
    CallElsewhere wait{[&] { return driver().cuStreamSynchronize(blocking); }};
    EXPECT_TRUE(wait.waits());
    work.end();
    EXPECT_CUDA(wait.answer());
  }
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, blocking));
}

TEST_F(StreamOperations, AllocationOnThePerThreadStreamWaitsForLegacyWorkBehindWhichItWasFreed) {
  const CUdeviceptr freed = given_async(ordered_size, legacy_stream);
  ASSERT_CUDA(driver().cuStreamSynchronize(legacy_stream));
  SlowWork work{kernels(), legacy_stream};
  ASSERT_CUDA(driver().cuMemFreeAsync(freed, legacy_stream));

  const CUdeviceptr memory = given_async(ordered_size, per_thread_stream);

  if (memory == freed) {
    EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(per_thread_stream));
    work.end();
    EXPECT_CUDA(driver().cuStreamSynchronize(per_thread_stream));
  }
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, per_thread_stream));
}

TEST_F(StreamOperations, AllocationOnANonBlockingStreamDoesNotWaitForLegacyWork) {
  const GivenStream non_blocking;
  SlowWork work{kernels(), legacy_stream};

  const CUdeviceptr memory = given_async(ordered_size, non_blocking);

  EXPECT_CUDA(driver().cuStreamSynchronize(non_blocking));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(legacy_stream));
  work.end();
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, non_blocking));
}

TEST_F(StreamOperations, AllocationDoesNotWaitForLegacyWorkSubmittedAfterIt) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const CUdeviceptr memory = given_async(ordered_size, blocking);
  SlowWork work{kernels(), legacy_stream};

  EXPECT_CUDA(driver().cuStreamSynchronize(blocking));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(legacy_stream));
  work.end();
  EXPECT_CUDA(driver().cuMemFreeAsync(memory, blocking));
}

TEST_F(StreamOperations, AllocationOnABlockingStreamIsNoBarrierForOtherBlockingStreams) {
  const GivenStream working{CU_STREAM_DEFAULT};
  const GivenStream idle{CU_STREAM_DEFAULT};
  SlowWork work{kernels(), working};

  const CUdeviceptr behind_work = given_async(ordered_size, working);
  const CUdeviceptr beside_work = given_async(ordered_size, idle);

  EXPECT_CUDA(driver().cuStreamSynchronize(idle));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(working));
  work.end();
  EXPECT_CUDA(driver().cuMemFreeAsync(beside_work, idle));
  EXPECT_CUDA(driver().cuMemFreeAsync(behind_work, working));
}

TEST_F(StreamOperations, ARefusedAllocationOnTheLegacyStreamIsNoBarrierForBlockingStreams) {
  const GivenStream working{CU_STREAM_DEFAULT};
  const GivenStream idle{CU_STREAM_DEFAULT};
  const GivenBlocking other{4 * KiB};
  for (int i = 0; i < 2; ++i) {
    ASSERT_CUDA(driver().cuMemFreeAsync(given_async(ordered_size, legacy_stream), legacy_stream));
  }
  SlowWork work{kernels(), working};

  size_t whole = 0;
  ASSERT_CUDA(driver().cuDeviceTotalMem(&whole, device()));
  CUdeviceptr none = 0;
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, driver().cuMemAllocAsync(&none, whole, legacy_stream));
  ASSERT_CUDA(driver().cuMemsetD32Async(other.address(), 1, 16, idle));

  EXPECT_CUDA(driver().cuStreamSynchronize(idle));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(working));
  work.end();
}

// Free --------------------------------------------------------------------------------------------

TEST_F(StreamOperations, FreeOnAnIdleBlockingStreamWaitsForLegacyWork) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const CUdeviceptr memory = given_async(ordered_size, blocking);
  ASSERT_CUDA(driver().cuStreamSynchronize(blocking));
  SlowWork work{kernels(), legacy_stream};

  ASSERT_CUDA(driver().cuMemFreeAsync(memory, blocking));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(blocking));
  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(blocking));
}

TEST_F(StreamOperations, FreeOnANonBlockingStreamDoesNotWaitForLegacyWork) {
  const GivenStream non_blocking;
  const CUdeviceptr memory = given_async(ordered_size, non_blocking);
  SlowWork work{kernels(), legacy_stream};

  ASSERT_CUDA(driver().cuMemFreeAsync(memory, non_blocking));

  EXPECT_CUDA(driver().cuStreamSynchronize(non_blocking));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(legacy_stream));
  work.end();
}

TEST_F(StreamOperations, FreeOnTheLegacyStreamComesBetweenTheWorkOfTwoBlockingStreams) {
  const GivenStream before{CU_STREAM_DEFAULT};
  const GivenStream after{CU_STREAM_DEFAULT};
  const GivenBlocking other{4 * KiB};
  const CUdeviceptr memory = given_async(ordered_size, legacy_stream);
  SlowWork work{kernels(), before};

  ASSERT_CUDA(driver().cuMemFreeAsync(memory, legacy_stream));
  ASSERT_CUDA(driver().cuMemsetD32Async(other.address(), 1, 16, after));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(after));
  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(after));
}

TEST_F(StreamOperations, BlockingFreeOfPoolMemoryHoldsNoStreamBack) {
  const GivenStream working{CU_STREAM_DEFAULT};
  const GivenStream idle{CU_STREAM_DEFAULT};
  const GivenBlocking other{4 * KiB};
  const CUdeviceptr memory = given_async(ordered_size, idle);
  ASSERT_CUDA(driver().cuStreamSynchronize(idle));
  SlowWork work{kernels(), working};

  ASSERT_CUDA(driver().cuMemFree(memory));
  ASSERT_CUDA(driver().cuMemsetD32Async(other.address(), 1, 16, idle));

  EXPECT_CUDA(driver().cuStreamSynchronize(idle));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(working));
  work.end();
}

// Waits -------------------------------------------------------------------------------------------

TEST_F(StreamOperations, SynchronizingTheContextWaitsForWorkSubmittedBefore) {
  const GivenStream stream;
  SlowWork work{kernels(), stream};

  CallElsewhere wait{[] { return synchronize(); }};

  EXPECT_TRUE(wait.waits());
  work.end();
  EXPECT_CUDA(wait.answer());
}

TEST_F(StreamOperations, SynchronizingTheContextDoesNotWaitForWorkSubmittedLater) {
  const GivenStream first;
  const GivenStream second;
  SlowWorkToCome before{kernels()};
  SlowWorkToCome later_on_the_same{kernels()};
  SlowWorkToCome later_on_another{kernels()};
  before.begin(first);
  CallElsewhere wait{[] { return synchronize(); }};
  ASSERT_TRUE(wait.waits());
  later_on_the_same.begin(first);
  later_on_another.begin(second);

  before.end();

  EXPECT_CUDA(wait.answer());
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(first));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(second));
  later_on_the_same.end();
  later_on_another.end();
}

// On a card launches and copies wait for a waiting cuMemFree; value waits do not.
TEST_F(StreamOperations, FreeOfBlockingMemoryDoesNotWaitForWorkSubmittedLater) {
  NEEDS_CALL(cuStreamWaitValue32_v2);
  const GivenStream first;
  const GivenStream second;
  GivenBlocking memory{ordered_size};
  HostFlag later;
  SlowWorkToCome before{kernels()};
  before.begin(first);
  CallElsewhere free{[&] { return memory.free(); }};
  ASSERT_TRUE(free.waits());
  ASSERT_CUDA(driver().cuStreamWaitValue32(first, later.address(), 1, CU_STREAM_WAIT_VALUE_GEQ));
  ASSERT_CUDA(driver().cuStreamWaitValue32(second, later.address(), 1, CU_STREAM_WAIT_VALUE_GEQ));

  before.end();

  EXPECT_TRUE(free.returns());
  EXPECT_CUDA(free.answer());
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(first));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(second));
  later.set();
}

TEST_F(StreamOperations, SynchronizingTheLegacyStreamHoldsNoStreamBack) {
  const GivenStream working{CU_STREAM_DEFAULT};
  const GivenStream idle{CU_STREAM_DEFAULT};
  const GivenBlocking other{4 * KiB};
  SlowWork work{kernels(), working};
  CallElsewhere wait{[] { return driver().cuStreamSynchronize(legacy_stream); }};
  ASSERT_TRUE(wait.waits());

  ASSERT_CUDA(driver().cuMemsetD32Async(other.address(), 1, 16, idle));

  EXPECT_CUDA(driver().cuStreamSynchronize(idle));
  EXPECT_TRUE(wait.waits());
  work.end();
  EXPECT_CUDA(wait.answer());
}

// On a card the end of a thread may wait for the work of its stream, so the thread is not joined
// earlier.
TEST_F(StreamOperations, QueryOfTheLegacyStreamCoversThreadsThatEnd) {
  SlowWorkToCome work{kernels()};
  CallElsewhere thread{[&] {
    work.begin(per_thread_stream);
    return CUDA_SUCCESS;
  }};
  ASSERT_CUDA(thread.answer());

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(legacy_stream));

  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(legacy_stream));
}

// A destroyed stream's work goes on, and blocks only streams that it blocked before.
TEST_F(StreamOperations, WorkThatADestroyedBlockingStreamLeftBehindHoldsNoOtherBlockingStreamBack) {
  GivenStream destroyed{CU_STREAM_DEFAULT};
  const GivenStream idle{CU_STREAM_DEFAULT};
  const GivenBlocking other{4 * KiB};
  SlowWorkToCome work{kernels()};
  work.begin(destroyed);
  ASSERT_CUDA(destroyed.destroy());

  ASSERT_CUDA(driver().cuMemsetD32Async(other.address(), 1, 16, idle));

  EXPECT_CUDA(driver().cuStreamSynchronize(idle));
  work.end();
  EXPECT_CUDA(synchronize());
}

}  // namespace
}  // namespace cuvmm::test
