// SPDX-License-Identifier: Apache-2.0
// Copies that are never deferred: in any doubtful case the copy runs when the program asks for it.
#include "resize/world.hpp"

namespace cuvmm::test {
namespace {

class NeverDeferred : public ResizeTest {
 protected:
  void SetUp() override {
    ResizeTest::SetUp();
    a_ = given_filled(block, 1);
  }
  // Copies the whole block, as a resize would; nothing is deferred, and the contents are right.
  void expect_copied(CUdeviceptr b, std::optional<WhyRun> why = std::nullopt) {
    EXPECT_DONE(copy(b, a_, block));
    EXPECT_FALSE(is_pending());
    if (why) {
      EXPECT_EQ(run(*why), 1U) << why_run();
    }
    EXPECT_DONE(free(a_));
    EXPECT_EQ(elided(), 0U);
    expect_filled(b, block, 1);
  }
  CUdeviceptr a_ = 0;
};

TEST_F(NeverDeferred, ABlockThatWasWritten) {
  const CUdeviceptr b = given_block(2 * block);
  fill(b, 2 * block, 9);
  EXPECT_DONE(copy(b, a_, block));
  EXPECT_FALSE(is_pending());
  expect_filled(b, block, 1);
  expect_filled(b, 2 * block, 9, block);  // keeps its bytes outside the copy
}

TEST_F(NeverDeferred, ABlockSinceWhichWorkWasSubmitted) {
  const CUdeviceptr other = given_block(block);
  const CUdeviceptr b = given_block(2 * block);
  ASSERT_DONE(launch_through_door(kernels_->fill, CUstream{}, std::uint64_t{other},
                                  std::uint32_t{1}, std::uint32_t{4}));
  expect_copied(b);
}

// The first copy was elided, so it submitted no work.
TEST_F(NeverDeferred, ABlockThatWasResizedInto) {
  constexpr Size large = 1000 * granule;
  constexpr Size small = 600 * granule;
  const CUdeviceptr from = given_filled(large, 2);
  const CUdeviceptr other = given_filled(small, 3);
  const CUdeviceptr to = given_block(large);
  ASSERT_DONE(copy(to, from, large));
  ASSERT_DONE(free(from));
  ASSERT_EQ(elided(), 1U) << why_run();
  EXPECT_DONE(copy(to, other, small));
  EXPECT_FALSE(is_pending());
  EXPECT_DONE(free(other));
  EXPECT_EQ(elided(), 1U);
  expect_filled(to, small, 3);
  expect_filled(to, large, 2, small);  // keeps its bytes outside the copy
}

TEST_F(NeverDeferred, WhileCallsAreScheduled) {
  Scheduling& scheduling = Engine::get()->scheduling();
  scheduling.set_policy(Schedule::Fifo);
  const CUdeviceptr b = given_block(2 * block);
  EXPECT_FALSE(is_pending());  // no promise was made
  expect_copied(b);
  scheduling.set_policy(Schedule::Off);
}

TEST_F(NeverDeferred, ACopyThatDoesNotBeginAtTheStart) {
  const CUdeviceptr b = given_block(2 * block);
  EXPECT_DONE(copy(b + 512, a_, block));
  EXPECT_FALSE(is_pending());
  const CUdeviceptr c = given_block(2 * block);
  EXPECT_DONE(copy(c, a_ + 512, block - 512));
  EXPECT_FALSE(is_pending());
}

TEST_F(NeverDeferred, ACopyBeyondTheBlock) {
  const CUdeviceptr b = given_block(2 * block);
  copy(b, a_, block + 64 * KiB);  // left to the driver to answer
  EXPECT_FALSE(is_pending());
}

TEST_F(NeverDeferred, ACopyToItself) {
  const CUdeviceptr untouched = given_block(block);
  EXPECT_DONE(copy(untouched, untouched, block));
  EXPECT_FALSE(is_pending());
}

TEST_F(NeverDeferred, WhileUnorderedWorkRuns) {
  CUstream stream = nullptr;
  ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
  HostFlag flag;
  ASSERT_DONE(launch_through_door(kernels_->wait_for_flag, stream, std::uint64_t{flag.address()}));
  const CUdeviceptr b = given_block(2 * block);
  EXPECT_DONE(copy(b, a_, block));
  EXPECT_FALSE(is_pending());
  EXPECT_EQ(run(WhyRun::Unordered), 1U) << why_run();
  flag.set();
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  EXPECT_FALSE(flag.given_up_on());
  expect_filled(b, block, 1);
  ASSERT_DONE(through_door<Call::cuStreamDestroy_v2>(stream));
}

// Such a stream can no longer be queried, and its work goes on.
TEST_F(NeverDeferred, WhileUnorderedWorkOfAStreamThatHasEndedRuns) {
  CUstream stream = nullptr;
  ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
  HostFlag flag;
  ASSERT_DONE(launch_through_door(kernels_->wait_for_flag, stream, std::uint64_t{flag.address()}));
  ASSERT_DONE(through_door<Call::cuStreamDestroy_v2>(stream));
  const CUdeviceptr b = given_block(2 * block);
  EXPECT_DONE(copy(b, a_, block));
  EXPECT_FALSE(is_pending());
  EXPECT_EQ(run(WhyRun::Unordered), 1U) << why_run();
  flag.set();
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  EXPECT_FALSE(flag.given_up_on());
  EXPECT_DONE(free(given_put_off(b, block, 2 * block)));  // now that the work is complete
}

TEST_F(NeverDeferred, OnAStreamThatTheDefaultStreamsWorkIsNotOrderedBefore) {
  CUstream stream = nullptr;
  ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
  HostFlag flag;
  ASSERT_DONE(
      launch_through_door(kernels_->wait_for_flag, CUstream{}, std::uint64_t{flag.address()}));
  const CUdeviceptr b = given_block(2 * block);
  EXPECT_DONE(through_door<Call::cuMemcpyDtoDAsync_v2>(b, a_, std::size_t{block}, stream));
  EXPECT_FALSE(is_pending());
  flag.set();
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  expect_filled(b, block, 1);
  ASSERT_DONE(through_door<Call::cuStreamDestroy_v2>(stream));
}

TEST_F(NeverDeferred, WithSyncMemops) {
  const unsigned on = 1;
  ASSERT_DONE(through_door<Call::cuPointerSetAttribute>(static_cast<const void*>(&on),
                                                        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a_));
  const CUdeviceptr b = given_block(2 * block);
  expect_copied(b, WhyRun::Shared);
}

TEST_F(NeverDeferred, AfterTokensWereQueried) {
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens{};
  const CUresult answer = through_door<Call::cuPointerGetAttribute>(
      static_cast<void*>(&tokens), CU_POINTER_ATTRIBUTE_P2P_TOKENS, a_);
  if (answer != CUDA_SUCCESS) GTEST_SKIP() << "the driver gives no tokens";
  const CUdeviceptr b = given_block(2 * block);
  expect_copied(b, WhyRun::Shared);
}

TEST_F(NeverDeferred, AfterADmaBuf) {
  int fd = -1;
  const CUresult answer = through_door<Call::cuMemGetHandleForAddressRange>(
      static_cast<void*>(&fd), a_, std::size_t{block}, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0ull);
  const OwnedFd owned{fd};
  if (answer != CUDA_SUCCESS) GTEST_SKIP() << "the driver gives no dma-buf";
  const CUdeviceptr b = given_block(2 * block);
  expect_copied(b, WhyRun::Shared);
}

TEST_F(NeverDeferred, WithAnotherContextOnTheDevice) {
  CUcontext second = nullptr;
  ASSERT_DONE(through_door<Call::cuCtxCreate_v2>(&second, 0u, CUdevice{0}));
  ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
  const CUdeviceptr b = given_block(2 * block);
  expect_copied(b, WhyRun::Shared);
  ASSERT_DONE(through_door<Call::cuCtxDestroy_v2>(second));
}

TEST_F(NeverDeferred, WhileACaptureIsLive) {
  CUstream stream = nullptr;
  ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
  const CUdeviceptr b = given_block(2 * block);
  ASSERT_DONE(through_door<Call::cuStreamBeginCapture_v2>(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_DONE(copy(b, a_, block));
  EXPECT_FALSE(is_pending());
  CUgraph graph = nullptr;
  through_door<Call::cuStreamEndCapture>(stream, &graph);
  if (graph != nullptr) through_door<Call::cuGraphDestroy>(graph);
  ASSERT_DONE(through_door<Call::cuStreamDestroy_v2>(stream));
}

// Pool memory is of another kind.
TEST_F(NeverDeferred, ToStreamOrderedMemory) {
  CUdeviceptr b = 0;
  ASSERT_DONE(through_door<Call::cuMemAllocAsync>(&b, std::size_t{2 * block}, CUstream{}));
  EXPECT_DONE(copy(b, a_, block));
  EXPECT_FALSE(is_pending());
  expect_filled(b, block, 1);
  ASSERT_DONE(through_door<Call::cuMemFreeAsync>(b, CUstream{}));
}

// When copying is faster than mapping, or no chunk fits.
TEST_F(NeverDeferred, ACopyThatGainsNothing) {
  if (promises()) GTEST_SKIP() << "memory counts more there";
  const CUdeviceptr small = given_filled(16 * granule, 2);
  const CUdeviceptr b = given_block(32 * granule);
  EXPECT_DONE(copy(b, small, 16 * granule));
  EXPECT_FALSE(is_pending());
  EXPECT_EQ(run(WhyRun::CostsMore), 1U) << why_run();
  const CUdeviceptr c = given_block(2 * block);
  EXPECT_DONE(copy(c, a_, block / 2));
  EXPECT_FALSE(is_pending());
  EXPECT_EQ(run(WhyRun::NoWholeChunk), 1U) << why_run();
  expect_filled(b, 16 * granule, 2);
  expect_filled(c, block / 2, 1);
}

}  // namespace
}  // namespace cuvmm::test
