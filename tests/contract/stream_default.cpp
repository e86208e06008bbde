// SPDX-License-Identifier: Apache-2.0
// The streams that always exist: the legacy stream and each thread's own.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class DefaultStream : public DriverContract {};

TEST_F(DefaultStream, LegacyWorkWaitsForBlockingStreams) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenBlocking memory{4 * KiB};
  SlowWork work{kernels(), blocking};

  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 16, default_stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(default_stream));
  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(default_stream));
}

TEST_F(DefaultStream, BlockingStreamsWaitForLegacyWork) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenBlocking memory{4 * KiB};
  SlowWork work{kernels(), default_stream};

  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 16, blocking));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(blocking));
  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(blocking));
}

TEST_F(DefaultStream, LegacyWorkDoesNotWaitForNonBlockingStreams) {
  const GivenStream non_blocking;
  const GivenBlocking memory{4 * KiB};
  SlowWork work{kernels(), non_blocking};

  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 16, default_stream));

  EXPECT_CUDA(driver().cuStreamSynchronize(default_stream));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(non_blocking));
  work.end();
}

TEST_F(DefaultStream, NonBlockingStreamsDoNotWaitForLegacyWork) {
  const GivenStream non_blocking;
  const GivenBlocking memory{4 * KiB};
  SlowWork work{kernels(), default_stream};

  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 16, non_blocking));

  EXPECT_CUDA(driver().cuStreamSynchronize(non_blocking));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(default_stream));
  work.end();
}

TEST_F(DefaultStream, LegacyWorkRunsBetweenTheWorkOfTwoBlockingStreams) {
  const GivenStream before{CU_STREAM_DEFAULT};
  const GivenStream after{CU_STREAM_DEFAULT};
  const GivenBlocking memory{4 * KiB};
  const CUdeviceptr word = memory.address();
  const Kernels& all = kernels();
  ASSERT_CUDA(driver().cuMemsetD32Async(word, 10, 1, before));
  ASSERT_CUDA(launch(all.add_one, default_stream, word, std::uint32_t{1}));
  ASSERT_CUDA(driver().cuMemcpyDtoDAsync(word + 64, word, 4, after));
  ASSERT_CUDA(driver().cuMemsetD32Async(word, 0, 1, after));

  ASSERT_CUDA(driver().cuStreamSynchronize(after));

  EXPECT_EQ(read_word(word + 64), 11u);
}

TEST_F(DefaultStream, TheLegacyHandleIsTheLegacyStreamInEitherFlavour) {
  SlowWork work{kernels(), default_stream};

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(legacy_stream));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery_per_thread(legacy_stream));
  work.end();
}

TEST_F(DefaultStream, InThePerThreadFlavourNullIsTheThreadsOwnStream) {
  SlowWork work{kernels(), per_thread_stream};

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery_per_thread(default_stream));

  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize_per_thread(default_stream));
  EXPECT_CUDA(driver().cuStreamQuery(per_thread_stream));
}

TEST_F(DefaultStream, ThePerThreadStreamIsBlocking) {
  const GivenBlocking memory{4 * KiB};
  SlowWork work{kernels(), default_stream};

  ASSERT_CUDA(driver().cuMemsetD32Async_per_thread(memory.address(), 1, 16, default_stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(per_thread_stream));
  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(per_thread_stream));
}

TEST_F(DefaultStream, LegacyWorkWaitsForThePerThreadStream) {
  const GivenBlocking memory{4 * KiB};
  SlowWork work{kernels(), per_thread_stream};

  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 16, default_stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(default_stream));
  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(default_stream));
}

TEST_F(DefaultStream, ThePerThreadStreamsOfTwoThreadsDoNotWaitForEachOther) {
  const GivenBlocking memory{4 * KiB};
  SlowWork work{kernels(), per_thread_stream};

  CallElsewhere set_and_wait{[&] {
    const CUresult set = driver().cuMemsetD32Async(memory.address(), 1, 16, per_thread_stream);
    return set == CUDA_SUCCESS ? driver().cuStreamSynchronize(per_thread_stream) : set;
  }};

  EXPECT_TRUE(set_and_wait.returns());
  EXPECT_CUDA(set_and_wait.answer());
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(per_thread_stream));
  work.end();
}

TEST_F(DefaultStream, ThePerThreadFlavourOfACopyUsesTheThreadsOwnStream) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenBlocking memory{4 * KiB};
  write_word(memory.address(), 3);
  SlowWork work{kernels(), blocking};
  std::uint32_t seen = 0;

  EXPECT_CUDA(driver().cuMemcpyDtoH_per_thread(&seen, memory.address(), 4))
      << "the legacy flavour would wait for the blocking stream";

  EXPECT_EQ(seen, 3u);
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(blocking));
  work.end();
}

TEST_F(DefaultStream, TheLegacyFlavourOfACopyWaitsForBlockingStreams) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenBlocking memory{4 * KiB};
  std::uint32_t seen = 0;
  SlowWork work{kernels(), blocking};
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 21, 1, blocking));

  CallElsewhere copy{[&] { return driver().cuMemcpyDtoH(&seen, memory.address(), 4); }};

  EXPECT_TRUE(copy.waits());
  work.end();
  ASSERT_CUDA(copy.answer());
  EXPECT_EQ(seen, 21u);
}

TEST_F(DefaultStream, AnEventRecordedOnTheLegacyStreamIsBehindBlockingStreams) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenEvent event;
  SlowWork work{kernels(), blocking};

  ASSERT_CUDA(driver().cuEventRecord(event, default_stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuEventQuery(event));
  work.end();
  EXPECT_CUDA(driver().cuEventSynchronize(event));
}

// Measured: a wait counts as work, on the legacy stream and on a blocking one alike.
TEST_F(DefaultStream, AWaitOnTheLegacyStreamHoldsBlockingStreamsBack) {
  const GivenStream slow;
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenEvent event;
  const GivenBlocking memory{4 * KiB};
  SlowWork work{kernels(), slow};
  ASSERT_CUDA(driver().cuEventRecord(event, slow));
  ASSERT_CUDA(driver().cuStreamWaitEvent(default_stream, event, 0));

  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 16, blocking));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(blocking));
  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(blocking));
}

TEST_F(DefaultStream, AWaitOnABlockingStreamHoldsTheLegacyStreamBack) {
  const GivenStream slow;
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenEvent event;
  const GivenBlocking memory{4 * KiB};
  SlowWork work{kernels(), slow};
  ASSERT_CUDA(driver().cuEventRecord(event, slow));
  ASSERT_CUDA(driver().cuStreamWaitEvent(blocking, event, 0));

  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 16, default_stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(default_stream));
  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(default_stream));
}

TEST_F(DefaultStream, SynchronizeOfTheLegacyStreamWaitsForBlockingStreams) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  SlowWork work{kernels(), blocking};

  CallElsewhere wait{[] { return driver().cuStreamSynchronize(default_stream); }};

  EXPECT_TRUE(wait.waits());
  work.end();
  EXPECT_CUDA(wait.answer());
}

TEST_F(DefaultStream, SynchronizeOfTheLegacyStreamWaitsForWhatBlockingStreamsWaitFor) {
  const GivenStream slow;
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenEvent event;
  SlowWork work{kernels(), slow};
  ASSERT_CUDA(driver().cuEventRecord(event, slow));
  ASSERT_CUDA(driver().cuStreamWaitEvent(blocking, event, 0));

  CallElsewhere wait{[] { return driver().cuStreamSynchronize(default_stream); }};

  EXPECT_TRUE(wait.waits());
  work.end();
  EXPECT_CUDA(wait.answer());
}

TEST_F(DefaultStream, SynchronizeOfABlockingStreamDoesNotWaitForLegacyWorkBehindIt) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  SlowWork work{kernels(), default_stream};

  EXPECT_CUDA(driver().cuStreamSynchronize(blocking)) << "it has no work of its own";

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(default_stream));
  work.end();
}

TEST_F(DefaultStream, AnEventOnABlockingStreamIsBehindLegacyWork) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenEvent event;
  SlowWork work{kernels(), default_stream};

  ASSERT_CUDA(driver().cuEventRecord(event, blocking));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuEventQuery(event));
  work.end();
  EXPECT_CUDA(driver().cuEventSynchronize(event));
}

TEST_F(DefaultStream, TwoContextsHaveSeparateLegacyStreams) {
  const GivenBlocking memory{4 * KiB};
  const OwnContext other;
  const Kernels kernels_there;
  SlowWork work{kernels_there, default_stream};
  {
    const Current back_in_the_primary_context{primary()};

    ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 16, default_stream));
    EXPECT_CUDA(driver().cuStreamSynchronize(default_stream));
  }
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(default_stream));
  work.end();
}

}  // namespace
}  // namespace cuvmm::test
