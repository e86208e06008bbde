// SPDX-License-Identifier: Apache-2.0
// Events: record, query, wait, measure, destroy.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class Events : public DriverContract {};

TEST_F(Events, AnEventNeverRecordedIsComplete) {
  const GivenEvent event;
  EXPECT_CUDA(driver().cuEventQuery(event));
  EXPECT_CUDA(driver().cuEventSynchronize(event));
}

TEST_F(Events, AnEventIsCompleteWhenTheWorkBeforeItIs) {
  const GivenStream stream;
  const GivenEvent event;
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(driver().cuEventRecord(event, stream));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuEventQuery(event));

  work.end();
  EXPECT_CUDA(driver().cuEventSynchronize(event));
  EXPECT_CUDA(driver().cuEventQuery(event));
}

TEST_F(Events, AnEventDoesNotWaitForTheWorkBehindIt) {
  const GivenStream stream;
  const GivenEvent event;
  const GivenBlocking memory{4 * KiB};
  ASSERT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 16, stream));
  ASSERT_CUDA(driver().cuEventRecord(event, stream));
  SlowWork work{kernels(), stream};

  EXPECT_CUDA(driver().cuEventSynchronize(event));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
}

TEST_F(Events, SynchronizeWaitsForTheEvent) {
  const GivenStream stream;
  const GivenEvent event;
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(driver().cuEventRecord(event, stream));

  CallElsewhere wait{[&] { return driver().cuEventSynchronize(event); }};

  EXPECT_TRUE(wait.waits());
  work.end();
  EXPECT_CUDA(wait.answer());
}

TEST_F(Events, ABlockingSyncEventIsWaitedForAlike) {
  const GivenStream stream;
  const GivenEvent event{CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING};
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(driver().cuEventRecord(event, stream));

  CallElsewhere wait{[&] { return driver().cuEventSynchronize(event); }};

  EXPECT_TRUE(wait.waits());
  work.end();
  EXPECT_CUDA(wait.answer());
}

TEST_F(Events, RecordingAgainReplacesTheFirstRecord) {
  const GivenStream quick;
  const GivenStream slow;
  const GivenEvent event;
  ASSERT_CUDA(driver().cuEventRecord(event, quick));
  ASSERT_CUDA(driver().cuEventSynchronize(event));
  SlowWork work{kernels(), slow};

  ASSERT_CUDA(driver().cuEventRecord(event, slow));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuEventQuery(event));
  work.end();
}

TEST_F(Events, RecordingAgainOnAnIdleStreamForgetsTheSlowOne) {
  const GivenStream quick;
  const GivenStream slow;
  const GivenEvent event;
  SlowWork work{kernels(), slow};
  ASSERT_CUDA(driver().cuEventRecord(event, slow));

  ASSERT_CUDA(driver().cuEventRecord(event, quick));

  EXPECT_CUDA(driver().cuEventSynchronize(event));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(slow));
  work.end();
}

TEST_F(Events, AnEventMayBeDestroyedWhilePending) {
  const GivenStream stream;
  GivenEvent event;
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(driver().cuEventRecord(event, stream));

  EXPECT_CUDA(event.destroy());

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream)) << "and that did not wait";
  work.end();
}

TEST_F(Events, AWaitOutlivesItsEvent) {
  const GivenStream slow;
  const GivenStream waiting;
  GivenEvent event;
  SlowWork work{kernels(), slow};
  ASSERT_CUDA(driver().cuEventRecord(event, slow));
  ASSERT_CUDA(driver().cuStreamWaitEvent(waiting, event, 0));

  ASSERT_CUDA(event.destroy());

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(waiting));
  work.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(waiting));
}

TEST_F(Events, RecordWithFlagsRecords) {
  NEEDS_CALL(cuEventRecordWithFlags);
  const GivenStream stream;
  const GivenEvent event;
  SlowWork work{kernels(), stream};

  ASSERT_CUDA(driver().cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT));

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuEventQuery(event));
  work.end();
}

TEST_F(Events, UnknownFlagsAreRefused) {
  CUevent event = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuEventCreate(&event, 0x100));
}

TEST_F(Events, AnInterprocessEventMustNotMeasureTime) {
  CUevent event = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuEventCreate(&event, CU_EVENT_INTERPROCESS));
}

TEST_F(Events, AnEventCannotBeRecordedOnAStreamOfAnotherContext) {
  const GivenEvent event;
  const OwnContext other;
  const GivenStream stream_there;

  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuEventRecord(event, stream_there));
}

TEST_F(Events, NoEventIsRefused) {
  const GivenStream stream;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuEventRecord(nullptr, stream));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuEventQuery(nullptr));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuEventSynchronize(nullptr));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuStreamWaitEvent(stream, nullptr, 0));
}

// A card may crash on an invalid handle, so only the simulated driver is asked.
TEST_F(Events, ADestroyedEventIsRefused) {
  NEEDS_SIMULATED_DRIVER();
  CUevent event = nullptr;
  ASSERT_CUDA(driver().cuEventCreate(&event, CU_EVENT_DEFAULT));
  ASSERT_CUDA(driver().cuEventDestroy(event));

  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuEventQuery(event));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuEventDestroy(event));
}

class EventTimes : public DriverContract {};

TEST_F(EventTimes, ElapsedTimeCoversTheWorkBetween) {
  const GivenStream stream;
  const GivenEvent start{CU_EVENT_DEFAULT};
  const GivenEvent end{CU_EVENT_DEFAULT};
  constexpr std::uint64_t nanoseconds = 5'000'000;
  ASSERT_CUDA(driver().cuEventRecord(start, stream));
  ASSERT_CUDA(launch(kernels().spin, stream, Shape{1, 1}, nanoseconds));
  ASSERT_CUDA(driver().cuEventRecord(end, stream));
  ASSERT_CUDA(driver().cuEventSynchronize(end));
  float milliseconds = -1;

  ASSERT_CUDA(driver().cuEventElapsedTime_v2000(&milliseconds, start, end));

  EXPECT_GE(milliseconds, 4.9f);
  EXPECT_LT(milliseconds, 20'000.0f);
}

TEST_F(EventTimes, BothSignaturesAgree) {
  NEEDS_CALL(cuEventElapsedTime_v2);
  const GivenStream stream;
  const GivenEvent start{CU_EVENT_DEFAULT};
  const GivenEvent end{CU_EVENT_DEFAULT};
  ASSERT_CUDA(driver().cuEventRecord(start, stream));
  ASSERT_CUDA(driver().cuEventRecord(end, stream));
  ASSERT_CUDA(driver().cuEventSynchronize(end));
  float old_signature = -1;
  float new_signature = -2;

  ASSERT_CUDA(driver().cuEventElapsedTime_v2000(&old_signature, start, end));
  ASSERT_CUDA(driver().cuEventElapsedTime(&new_signature, start, end));

  EXPECT_FLOAT_EQ(old_signature, new_signature);
}

TEST_F(EventTimes, AnEventWithoutTimingHasNoTime) {
  const GivenStream stream;
  const GivenEvent start{CU_EVENT_DISABLE_TIMING};
  const GivenEvent end{CU_EVENT_DEFAULT};
  ASSERT_CUDA(driver().cuEventRecord(start, stream));
  ASSERT_CUDA(driver().cuEventRecord(end, stream));
  ASSERT_CUDA(driver().cuEventSynchronize(end));
  float milliseconds = 0;

  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE,
                driver().cuEventElapsedTime_v2000(&milliseconds, start, end));
}

TEST_F(EventTimes, AnEventNeverRecordedHasNoTime) {
  const GivenStream stream;
  const GivenEvent start{CU_EVENT_DEFAULT};
  const GivenEvent end{CU_EVENT_DEFAULT};
  ASSERT_CUDA(driver().cuEventRecord(end, stream));
  ASSERT_CUDA(driver().cuEventSynchronize(end));
  float milliseconds = 0;

  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE,
                driver().cuEventElapsedTime_v2000(&milliseconds, start, end));
}

TEST_F(EventTimes, APendingEventHasNoTimeYet) {
  const GivenStream stream;
  const GivenEvent start{CU_EVENT_DEFAULT};
  const GivenEvent end{CU_EVENT_DEFAULT};
  ASSERT_CUDA(driver().cuEventRecord(start, stream));
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(driver().cuEventRecord(end, stream));
  float milliseconds = 0;

  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuEventElapsedTime_v2000(&milliseconds, start, end));
  work.end();
}

TEST_F(EventTimes, TimeRunsBackwardsWhenTheEventsAreSwapped) {
  const GivenStream stream;
  const GivenEvent start{CU_EVENT_DEFAULT};
  const GivenEvent end{CU_EVENT_DEFAULT};
  ASSERT_CUDA(driver().cuEventRecord(start, stream));
  ASSERT_CUDA(launch(kernels().spin, stream, Shape{1, 1}, std::uint64_t{1'000'000}));
  ASSERT_CUDA(driver().cuEventRecord(end, stream));
  ASSERT_CUDA(driver().cuEventSynchronize(end));
  float milliseconds = 0;

  ASSERT_CUDA(driver().cuEventElapsedTime_v2000(&milliseconds, end, start));

  EXPECT_LT(milliseconds, -0.9f);
}

}  // namespace
}  // namespace cuvmm::test
