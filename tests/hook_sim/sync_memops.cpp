// SPDX-License-Identifier: Apache-2.0
// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS on memory that cuvmm serves: which copies and sets wait, and for
// what.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "hook_sim/on_primary_context.hpp"

namespace cuvmm::test {
namespace {

constexpr Size bytes = 64 * KiB;

class SyncMemops : public OnPrimaryContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    if (Engine::get()->serving() == nullptr) GTEST_SKIP() << "nothing is served";
    ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&flagged_, std::size_t{bytes}));
    ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&plain_, std::size_t{bytes}));
    const unsigned on = 1;
    ASSERT_DONE(through_door<Call::cuPointerSetAttribute>(
        static_cast<const void*>(&on), CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, flagged_));
    void* host = nullptr;
    ASSERT_DONE(through_door<Call::cuMemHostAlloc>(&host, std::size_t{bytes},
                                                   unsigned{CU_MEMHOSTALLOC_DEVICEMAP}));
    word_ = static_cast<std::uint32_t*>(host);
    *word_ = 0;
    ASSERT_DONE(through_door<Call::cuMemHostGetDevicePointer_v2>(&word_on_device_, host, 0u));
    held_ = given_stream();
    stream_ = given_stream();
  }
  void TearDown() override {
    if (word_ == nullptr) return;
    release();
    OnPrimaryContext::TearDown();
  }

  static CUstream given_stream() {
    CUstream stream = nullptr;
    EXPECT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
    return stream;
  }

  // The stream waits until release().
  void hold(CUstream stream) {
    ASSERT_DONE(through_door<Call::cuStreamWaitValue32_v2>(stream, word_on_device_, cuuint32_t{1},
                                                           unsigned{CU_STREAM_WAIT_VALUE_EQ}));
  }
  void release() { __atomic_store_n(word_, 1, __ATOMIC_RELEASE); }

  CUresult set(CUdeviceptr address, CUstream stream) {
    return through_door<Call::cuMemsetD8Async>(address, static_cast<unsigned char>(1),
                                               std::size_t{bytes}, stream);
  }

  CUresult set_now(CUdeviceptr address) {
    return through_door<Call::cuMemsetD8_v2>(address, static_cast<unsigned char>(1),
                                             std::size_t{1024});
  }

  // Makes the call on another thread and expects it to return while the stream is held.
  void expect_returns(const std::function<CUresult()>& call) {
    auto answer = elsewhere(call);
    EXPECT_EQ(answer.wait_for(std::chrono::seconds{60}), std::future_status::ready);
    release();
    EXPECT_DONE(answer.get());
  }
  // Expects the call to wait until the held stream goes on.
  void expect_waits(const std::function<CUresult()>& call) {
    auto answer = elsewhere(call);
    EXPECT_EQ(answer.wait_for(std::chrono::milliseconds{40}), std::future_status::timeout);
    release();
    EXPECT_DONE(answer.get());
  }
  std::future<CUresult> elsewhere(const std::function<CUresult()>& call) const {
    return std::async(std::launch::async, [this, call] {
      const CUresult entered = through_door<Call::cuCtxSetCurrent>(context_);
      return entered == CUDA_SUCCESS ? call() : entered;
    });
  }

  CUdeviceptr flagged_ = 0;
  CUdeviceptr plain_ = 0;
  std::uint32_t* word_ = nullptr;
  CUdeviceptr word_on_device_ = 0;
  CUstream held_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_F(SyncMemops, ASetOfOtherMemoryDoesNotWaitForOtherStreams) {
  hold(held_);
  expect_returns([&] { return set(plain_, stream_); });
}

TEST_F(SyncMemops, ASetOfOtherMemoryDoesNotWaitForItsOwnStream) {
  hold(stream_);
  expect_returns([&] { return set(plain_, stream_); });
}

TEST_F(SyncMemops, AnAsynchronousSetOrCopyDoesNotWait) {
  hold(stream_);
  expect_returns([&] {
    EXPECT_DONE(set(flagged_, stream_));
    return through_door<Call::cuMemcpyDtoDAsync_v2>(plain_, flagged_, std::size_t{bytes}, stream_);
  });
}

TEST_F(SyncMemops, ASetWaitsForItsOwnStreamOnly) {
  hold(held_);
  expect_returns([&] { return set_now(flagged_); });
}

TEST_F(SyncMemops, ASetOfOtherMemoryDoesNotWaitForTheDefaultStream) {
  hold(CU_STREAM_LEGACY);
  expect_returns([&] { return set_now(plain_); });
}

// As the driver documents: whoever has the tokens may read the memory as soon as the call returns.
TEST_F(SyncMemops, AskingForTokensSetsTheAttribute) {
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens{};
  ASSERT_DONE(through_door<Call::cuPointerGetAttribute>(static_cast<void*>(&tokens),
                                                        CU_POINTER_ATTRIBUTE_P2P_TOKENS, plain_));
  unsigned is_set = 0;
  ASSERT_DONE(through_door<Call::cuPointerGetAttribute>(static_cast<void*>(&is_set),
                                                        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain_));
  EXPECT_EQ(is_set, 1u);
  hold(CU_STREAM_LEGACY);
  expect_waits([&] { return set_now(plain_); });
}

TEST_F(SyncMemops, ACopyWaitsWhicheverSideIsFlagged) {
  for (const auto& [to, from] : {std::pair{flagged_, plain_}, {plain_, flagged_}}) {
    *word_ = 0;
    hold(CU_STREAM_LEGACY);
    expect_waits([&, to = to, from = from] {
      return through_door<Call::cuMemcpyDtoD_v2>(to, from, std::size_t{bytes});
    });
  }
}

TEST_F(SyncMemops, AShapedCopyWaits) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = plain_;
  copy.dstDevice = flagged_;
  copy.WidthInBytes = copy.srcPitch = copy.dstPitch = 512;
  copy.Height = 4;
  hold(CU_STREAM_LEGACY);
  expect_waits([&] {
    const CUDA_MEMCPY2D* const asked = &copy;
    return through_door<Call::cuMemcpy2D_v2>(asked);
  });
}

TEST_F(SyncMemops, ASetWaitsForTheDefaultStream) {
  hold(CU_STREAM_LEGACY);
  expect_waits([&] { return set_now(flagged_ + 100); });
}

TEST_F(SyncMemops, NoWaitOnceTheAttributeIsClear) {
  const unsigned off = 0;
  ASSERT_DONE(through_door<Call::cuPointerSetAttribute>(
      static_cast<const void*>(&off), CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, flagged_));
  hold(CU_STREAM_LEGACY);
  expect_returns([&] { return set_now(flagged_); });
}

class SyncMemopsBesideACapture : public SyncMemops,
                                 public ::testing::WithParamInterface<CUstreamCaptureMode> {
 protected:
  void expect_sound(CUstream captured) {
    CUgraph graph = nullptr;
    EXPECT_DONE(through_door<Call::cuStreamEndCapture>(captured, &graph));
    if (graph != nullptr) {
      EXPECT_DONE(through_door<Call::cuGraphDestroy>(graph));
    }
  }
};

TEST_P(SyncMemopsBesideACapture, TheCaptureOfAnotherThreadGoesOn) {
  ASSERT_DONE(through_door<Call::cuStreamBeginCapture_v2>(held_, GetParam()));
  EXPECT_DONE(elsewhere([&] { return set_now(flagged_); }).get());
  expect_sound(held_);
}

TEST_P(SyncMemopsBesideACapture, ACallThatIsCapturedDoesNotWait) {
  ASSERT_DONE(through_door<Call::cuStreamBeginCapture_v2>(stream_, GetParam()));
  EXPECT_DONE(set(flagged_, stream_));
  expect_sound(stream_);
}

INSTANTIATE_TEST_SUITE_P(Modes, SyncMemopsBesideACapture,
                         ::testing::Values(CU_STREAM_CAPTURE_MODE_GLOBAL,
                                           CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                           CU_STREAM_CAPTURE_MODE_RELAXED));

}  // namespace
}  // namespace cuvmm::test
