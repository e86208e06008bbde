// SPDX-License-Identifier: Apache-2.0
// A capture is over once its stream or its context has ended, even if the program never ended the
// capture; from then on memory is served as before.
#include <gtest/gtest.h>

#include <thread>

#include "hook_sim/on_primary_context.hpp"

namespace cuvmm::test {
namespace {

class CaptureThatNobodyEnds : public ::testing::Test {
 protected:
  void SetUp() override {
    open_driver();
    ASSERT_DONE(through_door<Call::cuInit>(0u));
    ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&primary_, 0));
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(primary_));
    ASSERT_FALSE(is_any_live());
  }
  void TearDown() override {
    EXPECT_FALSE(is_any_live());
    if (fork_ != nullptr) {
      EXPECT_DONE(through_door<Call::cuEventDestroy_v2>(fork_));
    }
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(CUcontext{nullptr}));
    expect_served();
    EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
  }

  static bool is_any_live() { return Engine::get()->captures().any(); }

  static CUstream given_stream() {
    CUstream stream = nullptr;
    EXPECT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
    return stream;
  }
  static CUcontext given_context() {
    CUcontext context = nullptr;
    EXPECT_DONE(through_door<Call::cuCtxCreate_v2>(&context, 0u, 0));
    return context;
  }
  static CUresult begin(CUstream stream) {
    return through_door<Call::cuStreamBeginCapture_v2>(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  static CUstream given_captured() {
    const CUstream stream = given_stream();
    EXPECT_DONE(begin(stream));
    EXPECT_TRUE(is_any_live());
    return stream;
  }
  // A stream that has joined the capture of another.
  CUstream given_joined(CUstream captured) {
    const CUstream joined = given_stream();
    EXPECT_DONE(through_door<Call::cuEventCreate>(&fork_, unsigned{CU_EVENT_DISABLE_TIMING}));
    EXPECT_DONE(through_door<Call::cuEventRecord>(fork_, captured));
    EXPECT_DONE(through_door<Call::cuStreamWaitEvent>(joined, fork_, 0u));
    return joined;
  }
  static CUresult destroy(CUstream stream) {
    return through_door<Call::cuStreamDestroy_v2>(stream);
  }
  static CUresult destroy(CUcontext context) {
    return through_door<Call::cuCtxDestroy_v2>(context);
  }

  void expect_served() {
    Serving* const serving = Engine::get()->serving();
    if (serving == nullptr) return;
    ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&primary_, 0));
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(primary_));
    CUdeviceptr address = 0;
    EXPECT_DONE(through_door<Call::cuMemAlloc_v2>(&address, std::size_t{1 * MiB}));
    EXPECT_TRUE(serving->memory.find(address));
    EXPECT_DONE(through_door<Call::cuMemFree_v2>(address));
  }

  CUcontext primary_ = nullptr;
  CUevent fork_ = nullptr;
};

TEST_F(CaptureThatNobodyEnds, EndsWithItsStream) {
  EXPECT_DONE(destroy(given_captured()));
}

TEST_F(CaptureThatNobodyEnds, EndsWithItsStreamByTheOldCall) {
  EXPECT_DONE(through_door<Call::cuStreamDestroy>(given_captured()));
}

TEST_F(CaptureThatNobodyEnds, EndsWithItsStreamOnceItIsBroken) {
  const CUstream stream = given_captured();
  EXPECT_NE(through_door<Call::cuStreamSynchronize>(stream), CUDA_SUCCESS);
  EXPECT_TRUE(is_any_live());
  EXPECT_DONE(destroy(stream));
}

TEST_F(CaptureThatNobodyEnds, EndsWithItsStreamInAnotherThread) {
  const CUstream stream = given_captured();
  std::thread{[&] {
    EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(primary_));
    EXPECT_DONE(destroy(stream));
  }}.join();
}

TEST_F(CaptureThatNobodyEnds, IntoAGraphEndsWithItsStream) {
  CUgraph graph = nullptr;
  ASSERT_DONE(through_door<Call::cuGraphCreate>(&graph, 0u));
  const CUstream stream = given_stream();
  ASSERT_DONE(through_door<Call::cuStreamBeginCaptureToGraph>(
      stream, graph, static_cast<const CUgraphNode*>(nullptr),
      static_cast<const CUgraphEdgeData*>(nullptr), std::size_t{0},
      CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_TRUE(is_any_live());
  EXPECT_DONE(destroy(stream));
  EXPECT_DONE(through_door<Call::cuGraphDestroy>(graph));
}

TEST_F(CaptureThatNobodyEnds, EndsWithItsContext) {
  const CUcontext context = given_context();
  given_captured();
  EXPECT_DONE(destroy(context));
}

TEST_F(CaptureThatNobodyEnds, EndsWithTheContextOfItsThreadsOwnStream) {
  const CUcontext context = given_context();
  EXPECT_DONE(begin(CU_STREAM_PER_THREAD));
  EXPECT_TRUE(is_any_live());
  EXPECT_DONE(destroy(context));
}

TEST_F(CaptureThatNobodyEnds, EndsWithThePrimaryContextThatIsReset) {
  given_captured();
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
}

TEST_F(CaptureThatNobodyEnds, EndsWithTheLastReleaseOfThePrimaryContext) {
  CUcontext again = nullptr;
  ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&again, 0));
  given_captured();
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxRelease_v2>(0));
  EXPECT_TRUE(is_any_live()) << "that was not the last";
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxRelease_v2>(0));
}

TEST_F(CaptureThatNobodyEnds, LivesOnWhenAnotherStreamOrContextEnds) {
  const CUstream stream = given_captured();
  EXPECT_DONE(destroy(given_stream()));
  EXPECT_DONE(destroy(given_context()));
  ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(primary_));
  EXPECT_TRUE(is_any_live());
  EXPECT_DONE(destroy(stream));
}

TEST_F(CaptureThatNobodyEnds, OutlivesAStreamThatHasJoinedIt) {
  const CUstream stream = given_captured();
  EXPECT_DONE(destroy(given_joined(stream)));
  EXPECT_TRUE(is_any_live());
  EXPECT_DONE(destroy(stream));
}

// A pause needs to know that, and so does a free that waits for all work.
TEST_F(CaptureThatNobodyEnds, DoesNotHideWhetherItsStreamsHaveWorkLeft) {
  Serving* const serving = Engine::get()->serving();
  if (serving == nullptr) GTEST_SKIP() << "nothing is served";
  const CUstream stream = given_captured();
  EXPECT_DONE(destroy(given_joined(stream)));
  EXPECT_DONE(destroy(stream));
  EXPECT_TRUE(serving->clock.is_all_done(primary_));
}

TEST_F(CaptureThatNobodyEnds, IsCountedOnceHoweverOftenItIsBegunAndEnded) {
  const CUstream stream = given_captured();
  EXPECT_NE(begin(stream), CUDA_SUCCESS);
  EXPECT_NE(begin(CU_STREAM_LEGACY), CUDA_SUCCESS);
  EXPECT_TRUE(is_any_live());
  CUgraph graph = nullptr;
  EXPECT_DONE(through_door<Call::cuStreamEndCapture>(stream, &graph));
  EXPECT_FALSE(is_any_live());
  EXPECT_DONE(through_door<Call::cuGraphDestroy>(graph));
  EXPECT_DONE(begin(stream));
  EXPECT_DONE(destroy(stream));
}

TEST_F(CaptureThatNobodyEnds, LeavesOtherCapturesLive) {
  const CUstream one = given_captured();
  const CUstream other = given_captured();
  EXPECT_DONE(destroy(one));
  EXPECT_TRUE(is_any_live());
  EXPECT_DONE(destroy(other));
}

}  // namespace
}  // namespace cuvmm::test
