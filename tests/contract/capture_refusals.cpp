// SPDX-License-Identifier: Apache-2.0
// What a capture does not allow, and what happens to it then. Measured on an H200 unless marked.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class CaptureRefusals : public DriverContract {
 protected:
  void TearDown() override {
    // A thread's mode outlives a test.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    EXPECT_CUDA(driver().cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the test left the thread in another mode";
    DriverContract::TearDown();
  }

  static void begin(CUstream stream, CUstreamCaptureMode mode) {
    GIVEN(driver().cuStreamBeginCapture(stream, mode));
  }
  static void expect_invalidated(CUstream stream) {
    EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CUgraph graph = nullptr;
    EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                  driver().cuStreamEndCapture(stream, &graph));
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  }
  static void expect_well(CUstream stream) {
    EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUgraph graph = nullptr;
    EXPECT_CUDA(driver().cuStreamEndCapture(stream, &graph));
    EXPECT_NE(graph, nullptr);
    const GivenGraph captured{graph};
  }

  void expect_that_allocation_is_refused(CUstreamCaptureMode mode) {
    const GivenStream stream;
    begin(stream, mode);
    CUdeviceptr memory = 0;
    EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuMemAlloc(&memory, 2 * MiB));
    expect_invalidated(stream);
  }
  void expect_that_free_is_refused(CUstreamCaptureMode mode) {
    const GivenStream stream;
    GivenBlocking memory{2 * MiB};
    begin(stream, mode);
    EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuMemFree(memory.address()));
    expect_invalidated(stream);
    EXPECT_CUDA(driver().cuMemsetD8(memory.address(), 1, memory.size())) << "it is still there";
  }
  void expect_that_virtual_memory_is_created(CUstreamCaptureMode mode) {
    const GivenStream stream;
    const Size granule = granularity();
    begin(stream, mode);
    { const GivenChunk chunk = given_chunk(granule); }
    expect_well(stream);
  }
};

TEST_F(CaptureRefusals, AGlobalCaptureRefusesAllocation) {
  expect_that_allocation_is_refused(CU_STREAM_CAPTURE_MODE_GLOBAL);
}
TEST_F(CaptureRefusals, AThreadLocalCaptureRefusesAllocation) {
  expect_that_allocation_is_refused(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}
TEST_F(CaptureRefusals, AGlobalCaptureRefusesFree) {
  expect_that_free_is_refused(CU_STREAM_CAPTURE_MODE_GLOBAL);
}
TEST_F(CaptureRefusals, AThreadLocalCaptureRefusesFree) {
  expect_that_free_is_refused(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}
TEST_F(CaptureRefusals, AGlobalCaptureAllowsToCreateAChunk) {
  expect_that_virtual_memory_is_created(CU_STREAM_CAPTURE_MODE_GLOBAL);
}
TEST_F(CaptureRefusals, AThreadLocalCaptureAllowsToCreateAChunk) {
  expect_that_virtual_memory_is_created(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

TEST_F(CaptureRefusals, ARelaxedCaptureAllowsAllOfIt) {
  const GivenStream stream;
  const Size granule = granularity();
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);

  {
    GivenBlocking memory{2 * MiB};
    EXPECT_CUDA(memory.free());
    const GivenMapped mapped = given_mapped(1, granule);
  }

  expect_well(stream);
}

TEST_F(CaptureRefusals, AGlobalCaptureBindsOtherThreadsToo) {
  const GivenStream stream;
  CUdeviceptr memory = 0;
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);

  CallElsewhere allocate{[&] { return driver().cuMemAlloc(&memory, 2 * MiB); }};

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, allocate.answer());
  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, AThreadLocalCaptureLeavesOtherThreadsFree) {
  const GivenStream stream;
  CUdeviceptr memory = 0;
  begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

  CallElsewhere allocate{[&] { return driver().cuMemAlloc(&memory, 2 * MiB); }};

  EXPECT_CUDA(allocate.answer());
  expect_well(stream);
  EXPECT_CUDA(driver().cuMemFree(memory));
}

// What cuvmm does for its own memory while a program captures.
TEST_F(CaptureRefusals, ARelaxedThreadMayDoMemoryWorkInsideAGlobalCapture) {
  const GivenStream capturing;
  const GivenStream other;
  const GivenEvent event;
  const Size granule = granularity();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  begin(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL);

  ASSERT_CUDA(driver().cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the mode before";
  {
    GivenBlocking memory{2 * MiB};
    GivenMapped mapped = given_mapped(2, granule);
    EXPECT_CUDA(driver().cuEventRecord(event, other));
    EXPECT_CUDA(driver().cuEventQuery(event));
    EXPECT_CUDA(mapped.mapping(0).unmap());
    EXPECT_CUDA(memory.free());
  }
  ASSERT_CUDA(driver().cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);

  expect_well(capturing);
}

TEST_F(CaptureRefusals, AnUnknownThreadModeIsRefused) {
  auto mode = static_cast<CUstreamCaptureMode>(77);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuThreadExchangeStreamCaptureMode(&mode));
}

TEST_F(CaptureRefusals, ACapturingStreamCannotBeWaitedFor) {
  const GivenStream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuStreamSynchronize(stream));

  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, ACapturingStreamCannotBeQueried) {
  const GivenStream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuStreamQuery(stream));

  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, TheContextCannotBeWaitedForWhileAStreamCaptures) {
  const GivenStream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, synchronize());

  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, ACapturedEventCannotBeAsked) {
  const GivenStream stream;
  const GivenEvent event;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_CUDA(driver().cuEventRecord(event, stream));

  EXPECT_ANSWER(CUDA_ERROR_CAPTURED_EVENT, driver().cuEventQuery(event));

  // unmeasured: whether the question invalidates the capture.
  CUgraph graph = nullptr;
  (void)driver().cuStreamEndCapture(stream, &graph);
  const GivenGraph whatever_it_was{graph};
}

TEST_F(CaptureRefusals, ACapturedEventCannotBeWaitedForByTheHost) {
  const GivenStream stream;
  const GivenEvent event;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_CUDA(driver().cuEventRecord(event, stream));

  EXPECT_ANSWER(CUDA_ERROR_CAPTURED_EVENT, driver().cuEventSynchronize(event));

  CUgraph graph = nullptr;
  (void)driver().cuStreamEndCapture(stream, &graph);
  const GivenGraph whatever_it_was{graph};
}

TEST_F(CaptureRefusals, WorkRecordedBeforeTheCaptureCannotBeWaitedForInside) {
  const GivenStream capturing;
  const GivenStream other;
  const GivenEvent event;
  ASSERT_CUDA(driver().cuEventRecord(event, other));
  begin(capturing, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                driver().cuStreamWaitEvent(capturing, event, 0));

  expect_invalidated(capturing);
}

TEST_F(CaptureRefusals, TwoCapturesCannotMerge) {
  const GivenStream first;
  const GivenStream second;
  const GivenEvent event;
  begin(first, CU_STREAM_CAPTURE_MODE_RELAXED);
  begin(second, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_CUDA(driver().cuEventRecord(event, first));

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_MERGE, driver().cuStreamWaitEvent(second, event, 0));

  // unmeasured: which of the two survive. Both must end.
  CUgraph graph_of_first = nullptr;
  CUgraph graph_of_second = nullptr;
  (void)driver().cuStreamEndCapture(first, &graph_of_first);
  (void)driver().cuStreamEndCapture(second, &graph_of_second);
  const GivenGraph one{graph_of_first};
  const GivenGraph another{graph_of_second};
}

TEST_F(CaptureRefusals, LegacyWorkWouldDependOnACapturingBlockingStream) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenBlocking memory{4 * KiB};
  begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                driver().cuMemsetD32Async(memory.address(), 1, 1, default_stream));

  expect_invalidated(blocking);
}

TEST_F(CaptureRefusals, LegacyWorkGoesOnBesideACapturingNonBlockingStream) {
  const GivenStream non_blocking;
  const GivenBlocking memory{4 * KiB};
  begin(non_blocking, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 1, default_stream));

  expect_well(non_blocking);
}

TEST_F(CaptureRefusals, CaptureInfoOfTheLegacyStreamNamesTheImplicitDependency) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  CUstreamCaptureStatus status{};
  begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                driver().cuStreamIsCapturing(default_stream, &status));

  // unmeasured: whether the question invalidates the capture.
  CUgraph graph = nullptr;
  (void)driver().cuStreamEndCapture(blocking, &graph);
  const GivenGraph whatever_it_was{graph};
}

TEST_F(CaptureRefusals, AnInvalidatedCaptureTakesNoMoreWork) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuStreamSynchronize(stream));

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                driver().cuMemsetD32Async(memory.address(), 1, 1, stream));

  expect_invalidated(stream);
}

TEST_F(CaptureRefusals, AStreamIsUsableAfterAFailedCapture) {
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, driver().cuStreamSynchronize(stream));
  expect_invalidated(stream);

  EXPECT_CUDA(driver().cuMemsetD32Async(memory.address(), 4, 1, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_EQ(read_word(memory.address()), 4u);
}

TEST_F(CaptureRefusals, ACallbackCannotBeCaptured) {
  const GivenStream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);

  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                driver().cuStreamAddCallback(
                    stream, [](CUstream, CUresult, void*) {}, nullptr, 0));

  expect_invalidated(stream);
}

}  // namespace
}  // namespace cuvmm::test
