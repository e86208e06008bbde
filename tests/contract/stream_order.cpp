// SPDX-License-Identifier: Apache-2.0
// What runs before what: within a stream, between streams, and through events.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class StreamOrder : public DriverContract {};

TEST_F(StreamOrder, AnEmptyStreamIsDone) {
  const GivenStream stream;
  EXPECT_CUDA(driver().cuStreamQuery(stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(StreamOrder, QueryAnswersNotReadyWhileWorkRuns) {
  const GivenStream stream;
  SlowWork work{kernels(), stream};

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));

  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_CUDA(driver().cuStreamQuery(stream));
}

TEST_F(StreamOrder, SynchronizeWaitsForTheStreamsWork) {
  const GivenStream stream;
  SlowWork work{kernels(), stream};

  CallElsewhere synchronize_stream{[&] { return driver().cuStreamSynchronize(stream); }};

  EXPECT_TRUE(synchronize_stream.waits());
  work.end();
  EXPECT_CUDA(synchronize_stream.answer());
}

TEST_F(StreamOrder, SynchronizeOfOneStreamDoesNotWaitForAnother) {
  const GivenStream working;
  const GivenStream idle;
  SlowWork work{kernels(), working};

  EXPECT_CUDA(driver().cuStreamSynchronize(idle));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(working));
  work.end();
}

TEST_F(StreamOrder, WorkOfOneStreamRunsInTheOrderOfItsCalls) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 5, 16, stream));
  ASSERT_CUDA(launch(kernels().add_one, stream, memory.address(), std::uint32_t{16}));
  ASSERT_CUDA(driver().cuMemcpyDtoDAsync(memory.address() + 64, memory.address(), 64, stream));
  ASSERT_CUDA(launch(kernels().add_one, stream, memory.address(), std::uint32_t{16}));

  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(all_words_are(memory.address(), 16, 7));
  EXPECT_TRUE(all_words_are(memory.address() + 64, 16, 6));
}

TEST_F(StreamOrder, WorkBehindSlowWorkHasNotRunBeforeItEnds) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  PinnedWords seen{1};
  write_word(memory.address(), 9);
  SlowWork work{kernels(), stream};

  ASSERT_CUDA(driver().cuMemcpyDtoHAsync(seen.data(), memory.address(), 4, stream));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  EXPECT_EQ(seen[0], 0u);

  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(seen[0], 9u);
}

TEST_F(StreamOrder, NonBlockingStreamsDoNotWaitForEachOther) {
  const GivenStream slow;
  const GivenStream quick;
  const GivenBlocking memory{4 * KiB};
  SlowWork work{kernels(), slow};

  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 16, quick));
  EXPECT_CUDA(driver().cuStreamSynchronize(quick));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(slow));
  work.end();
}

TEST_F(StreamOrder, BlockingStreamsDoNotWaitForEachOther) {
  const GivenStream slow{CU_STREAM_DEFAULT};
  const GivenStream quick{CU_STREAM_DEFAULT};
  const GivenBlocking memory{4 * KiB};
  SlowWork work{kernels(), slow};

  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 16, quick));
  EXPECT_CUDA(driver().cuStreamSynchronize(quick));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(slow));
  work.end();
}

TEST_F(StreamOrder, AStreamWaitsForAnEventOfAnother) {
  const GivenStream first;
  const GivenStream second;
  const GivenEvent event;
  SlowWork work{kernels(), first};
  ASSERT_CUDA(driver().cuEventRecord(event, first));

  ASSERT_CUDA(driver().cuStreamWaitEvent(second, event, 0));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(second));
  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(second));
  EXPECT_CUDA(driver().cuEventQuery(event)) << "what the stream waited for is done";
}

TEST_F(StreamOrder, AWaitForAnEventSeesWhatWasWrittenBeforeIt) {
  const GivenStream writer;
  const GivenStream reader;
  const GivenEvent written;
  const GivenBlocking memory{4 * KiB};
  PinnedWords seen{1};
  SlowWork work{kernels(), writer};
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 77, 1, writer));
  ASSERT_CUDA(driver().cuEventRecord(written, writer));
  ASSERT_CUDA(driver().cuStreamWaitEvent(reader, written, 0));
  ASSERT_CUDA(driver().cuMemcpyDtoHAsync(seen.data(), memory.address(), 4, reader));

  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(reader));

  EXPECT_EQ(seen[0], 77u);
}

TEST_F(StreamOrder, AWaitForAnEventNeverRecordedDoesNothing) {
  const GivenStream stream;
  const GivenEvent event;

  EXPECT_CUDA(driver().cuStreamWaitEvent(stream, event, 0));

  EXPECT_CUDA(driver().cuStreamQuery(stream));
}

TEST_F(StreamOrder, AWaitDoesNotSeeARecordThatComesLater) {
  const GivenStream first;
  const GivenStream second;
  const GivenEvent event;
  ASSERT_CUDA(driver().cuStreamWaitEvent(second, event, 0));

  SlowWork work{kernels(), first};
  ASSERT_CUDA(driver().cuEventRecord(event, first));

  EXPECT_CUDA(driver().cuStreamSynchronize(second));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuEventQuery(event));
  work.end();
}

TEST_F(StreamOrder, AWaitKeepsTheStateAtTheCallWhenTheEventIsRecordedAgain) {
  const GivenStream quick;
  const GivenStream slow;
  const GivenStream waiting;
  const GivenEvent event;
  ASSERT_CUDA(driver().cuEventRecord(event, quick));
  ASSERT_CUDA(driver().cuStreamWaitEvent(waiting, event, 0));

  SlowWork work{kernels(), slow};
  ASSERT_CUDA(driver().cuEventRecord(event, slow));

  EXPECT_CUDA(driver().cuStreamSynchronize(waiting)) << "it waits for the first record only";
  work.end();
}

TEST_F(StreamOrder, AWaitForTheFirstRecordIsNotEndedByTheSecond) {
  const GivenStream slow;
  const GivenStream quick;
  const GivenStream waiting;
  const GivenEvent event;
  SlowWork work{kernels(), slow};
  ASSERT_CUDA(driver().cuEventRecord(event, slow));
  ASSERT_CUDA(driver().cuStreamWaitEvent(waiting, event, 0));

  ASSERT_CUDA(driver().cuEventRecord(event, quick));
  ASSERT_CUDA(driver().cuEventSynchronize(event));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(waiting));
  work.end();
}

TEST_F(StreamOrder, AStreamMayWaitForAnEventOfAnotherContext) {
  const GivenStream waiting;
  const OwnContext other;
  const Kernels kernels_there;
  const GivenStream working;
  const GivenEvent event;
  SlowWork work{kernels_there, working};
  ASSERT_CUDA(driver().cuEventRecord(event, working));
  const Current back_in_the_primary_context{primary()};

  EXPECT_CUDA(driver().cuStreamWaitEvent(waiting, event, 0));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(waiting));
  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(waiting));
}

TEST_F(StreamOrder, DestroyingAStreamDoesNotWaitForItsWork) {
  GivenStream stream;
  const GivenStream watching;
  const GivenEvent done;
  HostFlag flag;
  ASSERT_CUDA(launch(kernels().wait_for_flag, stream, Shape{1, 1}, flag.address()));
  ASSERT_CUDA(driver().cuEventRecord(done, stream));

  EXPECT_CUDA(stream.destroy());

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuEventQuery(done));
  flag.set();
  EXPECT_CUDA(driver().cuEventSynchronize(done));
  EXPECT_FALSE(flag.given_up_on());
}

TEST_F(StreamOrder, ADestroyedStreamFinishesItsWork) {
  GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  ASSERT_CUDA(driver().cuMemsetD32(memory.address(), 0, 16));
  ASSERT_CUDA(driver().cuCtxSynchronize_v2000());
  HostFlag flag;
  ASSERT_CUDA(launch(kernels().wait_for_flag, stream, Shape{1, 1}, flag.address()));
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 4, 16, stream));

  ASSERT_CUDA(stream.destroy());
  flag.set();
  ASSERT_CUDA(synchronize());

  EXPECT_TRUE(all_words_are(memory.address(), 16, 4));
}

TEST_F(StreamOrder, ContextSynchronizeWaitsForEveryStream) {
  const GivenStream stream;
  SlowWork work{kernels(), stream};

  CallElsewhere synchronize_context{[] { return synchronize(); }};

  EXPECT_TRUE(synchronize_context.waits());
  work.end();
  EXPECT_CUDA(synchronize_context.answer());
}

}  // namespace
}  // namespace cuvmm::test
