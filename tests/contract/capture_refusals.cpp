// SPDX-License-Identifier: Apache-2.0
// What a capture forbids, and what then happens to it. Measured on an H200 unless marked.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class CaptureRefusals : public DriverContract {};

TEST_F(CaptureRefusals, ARelaxedCaptureAllowsWaitingForAnotherStream) {
  const GivenStream stream;
  const GivenStream other;
  const GivenEvent event;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CUDA(driver().cuEventRecord(event, other));
  EXPECT_CUDA(driver().cuEventSynchronize(event));
  EXPECT_CUDA(driver().cuStreamSynchronize(other));
  EXPECT_CUDA(driver().cuStreamQuery(other));
  expect_well(stream);
}

TEST_F(CaptureRefusals, ARelaxedThreadMayQueryAndRecordOnStreamsOfAnyKindDuringAGlobalCapture) {
  for (const unsigned captured : {CU_STREAM_NON_BLOCKING, CU_STREAM_DEFAULT}) {
    for (const unsigned flags : {CU_STREAM_NON_BLOCKING, CU_STREAM_DEFAULT}) {
      const GivenStream stream{captured};
      const GivenStream other{flags};
      const GivenEvent event;
      SlowWork work{kernels(), other};
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
      ASSERT_CUDA(driver().cuThreadExchangeStreamCaptureMode(&mode));
      EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(other));
      EXPECT_CUDA(driver().cuEventRecord(event, other));
      work.end();
      EXPECT_CUDA(driver().cuEventSynchronize(event));
      EXPECT_CUDA(driver().cuStreamQuery(other));
      ASSERT_CUDA(driver().cuThreadExchangeStreamCaptureMode(&mode));
      expect_well(stream);
    }
  }
}

TEST_F(CaptureRefusals, AThreadLocalCaptureRefusesWaitingForAnotherStream) {
  const GivenStream stream;
  const GivenStream other;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuStreamSynchronize(other));
  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, AThreadLocalCaptureRefusesToQueryAnotherStream) {
  const GivenStream stream;
  const GivenStream other;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuStreamQuery(other));
  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, AThreadLocalCaptureRefusesToWaitForAnyEvent) {
  const GivenStream stream;
  const GivenStream other;
  const GivenEvent event;
  ASSERT_CUDA(driver().cuEventRecord(event, other));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuEventSynchronize(event));
  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, AThreadLocalCaptureRefusesToQueryAnyEvent) {
  const GivenStream stream;
  const GivenStream other;
  const GivenEvent event;
  ASSERT_CUDA(driver().cuEventRecord(event, other));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuEventQuery(event));
  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, AThreadLocalCaptureAllowsABlockingCopyBesideANonBlockingStream) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  std::uint32_t word = 0;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_CUDA(driver().cuMemcpyDtoH(&word, memory.address(), 4));
  expect_well(stream);
}

TEST_F(CaptureRefusals, ABlockingCopyWouldDependOnACapturingBlockingStream) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenBlocking memory{4 * KiB};
  std::uint32_t word = 0;
  begin_capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                driver().cuMemcpyDtoH(&word, memory.address(), 4));
  expect_invalidated(blocking);
}

TEST_F(CaptureRefusals, ARelaxedCaptureAllowsABlockingCopyBesideANonBlockingStream) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  std::uint32_t word = 0;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CUDA(driver().cuMemcpyDtoH(&word, memory.address(), 4));
  expect_well(stream);
}

TEST_F(CaptureRefusals, ACapturingStreamCannotBeWaitedFor) {
  const GivenStream stream;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuStreamSynchronize(stream));

  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, ACapturingStreamCannotBeQueried) {
  const GivenStream stream;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuStreamQuery(stream));

  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, TheContextCannotBeWaitedForWhileAStreamCaptures) {
  const GivenStream stream;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, synchronize());

  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, ACapturedEventCannotBeQueried) {
  const GivenStream stream;
  const GivenEvent event;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_CUDA(driver().cuEventRecord(event, stream));

  EXPECT_ANSWER(CUDA_ERROR_CAPTURED_EVENT, driver().cuEventQuery(event));

  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, ACapturedEventCannotBeWaitedForByTheHost) {
  const GivenStream stream;
  const GivenEvent event;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_CUDA(driver().cuEventRecord(event, stream));

  EXPECT_ANSWER(CUDA_ERROR_CAPTURED_EVENT, driver().cuEventSynchronize(event));

  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, WorkRecordedBeforeTheCaptureCannotBeWaitedForInside) {
  const GivenStream capturing;
  const GivenStream other;
  const GivenEvent event;
  ASSERT_CUDA(driver().cuEventRecord(event, other));
  begin_capture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                driver().cuStreamWaitEvent(capturing, event, 0));

  expect_invalidated(capturing);
}

TEST_F(CaptureRefusals, TwoCapturesCannotMerge) {
  const GivenStream first;
  const GivenStream second;
  const GivenEvent event;
  begin_capture(first, CU_STREAM_CAPTURE_MODE_RELAXED);
  begin_capture(second, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_CUDA(driver().cuEventRecord(event, first));

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_MERGE, driver().cuStreamWaitEvent(second, event, 0));

  expect_invalidated(first);
  expect_invalidated(second);
}

TEST_F(CaptureRefusals, LegacyWorkWouldDependOnACapturingBlockingStream) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenBlocking memory{4 * KiB};
  begin_capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                driver().cuMemsetD32Async(memory.address(), 1, 1, default_stream));

  expect_invalidated(blocking);
}

TEST_F(CaptureRefusals, LegacyWorkIsAllowedBesideACapturingNonBlockingStream) {
  const GivenStream non_blocking;
  const GivenBlocking memory{4 * KiB};
  begin_capture(non_blocking, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 1, default_stream));

  expect_well(non_blocking);
}

TEST_F(CaptureRefusals, CaptureInfoOfTheLegacyStreamNamesTheImplicitDependency) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  CUstreamCaptureStatus status{};
  begin_capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                driver().cuStreamIsCapturing(default_stream, &status));

  expect_well(blocking);
}

TEST_F(CaptureRefusals, AnInvalidatedCaptureTakesNoMoreWork) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuStreamSynchronize(stream));

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                driver().cuMemsetD32Async(memory.address(), 1, 1, stream));

  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, AStreamIsUsableAfterAFailedCapture) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuStreamSynchronize(stream));
  expect_invalidated(stream);

  EXPECT_CUDA(driver().cuMemsetD32Async(memory.address(), 4, 1, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(memory.address()), 4u);
}

TEST_F(CaptureRefusals, ACallbackCannotBeCaptured) {
  const GivenStream stream;
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                driver().cuStreamAddCallback(
                    stream, [](CUstream, CUresult, void*) {}, nullptr, 0));

  expect_invalidated(stream);
}

}  // namespace
}  // namespace cuvmm::test
