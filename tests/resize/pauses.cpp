// SPDX-License-Identifier: Apache-2.0
// Deferred copies and promises while the process is paused: calls that the program may still make
// without memory must not run the copies then.
#include <optional>

#include "base/clock.hpp"
#include "engine/control.hpp"
#include "hook_sim/told.hpp"
#include "resize/world.hpp"

namespace cuvmm::test {
namespace {

constexpr Duration timeout{60'000'000};

class PausedResize : public ResizeTest {
 protected:
  static Control& control() { return *Engine::get()->control(); }

  // Makes the call on another thread while the process is paused, and expects it to return only
  // after the resume.
  template <class Ask>
  void expect_to_wait_for_resuming(Ask ask) {
    ASSERT_TRUE(control().pause(timeout, Strict::No).ok());
    std::atomic<bool> is_answered{false};
    std::thread asking{[&] {
      through_door<Call::cuCtxSetCurrent>(context_);
      EXPECT_DONE(ask());
      is_answered = true;
    }};
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    EXPECT_FALSE(is_answered);
    EXPECT_TRUE(control().resume(Partly::No).ok());
    asking.join();
  }

  // All calls that wait or query, and touch no memory themselves.
  std::vector<std::function<CUresult()>> questions() {
    return {[] { return through_door<Call::cuCtxSynchronize>(); },
            [this] { return through_door<Call::cuStreamSynchronize>(stream_->get()); },
            [this] { return through_door<Call::cuStreamQuery>(stream_->get()); },
            [this] { return through_door<Call::cuEventQuery>(event_); },
            [this] { return through_door<Call::cuEventSynchronize>(event_); }};
  }
  void SetUp() override {
    ResizeTest::SetUp();
    stream_.emplace();
    ASSERT_DONE(through_door<Call::cuEventCreate>(&event_, 0u));
  }
  void TearDown() override {
    EXPECT_DONE(through_door<Call::cuEventDestroy_v2>(event_));
    stream_.reset();
    ResizeTest::TearDown();
  }

  std::optional<GivenStream> stream_;
  CUevent event_ = nullptr;
};

TEST_F(PausedResize, AWaitDoesNotRunADeferredCopy) {
  for (const auto& ask : questions()) {
    const CUdeviceptr a = given_filled(block, 1);
    const CUdeviceptr b = given_put_off(a, block, 2 * block);
    expect_to_wait_for_resuming(ask);
    expect_filled(b, block, 1);
    expect_filled(a, block, 1);
    EXPECT_DONE(free(a));
    EXPECT_DONE(free(b));
  }
}

TEST_F(PausedResize, AWaitDoesNotKeepAPromise) {
  if (!promises()) GTEST_SKIP() << "promises are for VMM_RESIZE=elide";
  for (const auto& ask : questions()) {
    const CUdeviceptr a = given_filled(16 * block, 1);
    const CUdeviceptr other = given_block(2 * block);
    const CUdeviceptr b = given_put_off(a, 16 * block, 20 * block);
    expect_to_wait_for_resuming(ask);
    EXPECT_TRUE(is_pending()) << "there was memory for both";
    EXPECT_DONE(free(other));
    EXPECT_DONE(free(a));
    expect_filled(b, 16 * block, 1);
    EXPECT_DONE(free(b));
  }
}

TEST_F(PausedResize, QueriesAnswerDeviceMemoryWhileItIsAway) {
  const CUdeviceptr a = given_filled(block, 1);
  ASSERT_TRUE(control().pause(timeout, Strict::No).ok());
  expect_to_be_told_of_device_memory(a);
  EXPECT_TRUE(control().resume(Partly::No).ok());
  expect_filled(a, block, 1);
  EXPECT_DONE(free(a));
}

// Facts that only the driver knows are queried once the memory is there.
TEST_F(PausedResize, QueriesThatOnlyTheDriverCanAnswerWait) {
  const CUdeviceptr a = given_filled(block, 1);
  expect_to_wait_for_resuming([a] {
    std::uint64_t size = 0;
    return through_door<Call::cuPointerGetAttribute>(static_cast<void*>(&size),
                                                     CU_POINTER_ATTRIBUTE_MAPPING_SIZE, a);
  });
  expect_to_wait_for_resuming([a] {
    std::uint64_t size = 0;
    CUpointer_attribute wanted = CU_POINTER_ATTRIBUTE_MAPPING_SIZE;
    void* data = &size;
    const CUresult answer = through_door<Call::cuPointerGetAttributes>(1u, &wanted, &data, a);
    EXPECT_GT(size, 0U);
    return answer;
  });
  EXPECT_DONE(free(a));
}

// A pause waits for the stream's own work and for the copy that was deferred for it.
TEST_F(PausedResize, AnEndingStreamRunsItsDeferredCopy) {
  const CUdeviceptr a = given_filled(block, 1);
  CUstream stream = nullptr;
  ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
  ASSERT_DONE(launch_through_door(kernels_->spin, stream, std::uint64_t{1'000'000}));
  const CUdeviceptr b = given_block(2 * block);
  ASSERT_DONE(through_door<Call::cuMemcpyDtoDAsync_v2>(b, a, std::size_t{block}, stream));
  const bool was_put_off = is_pending();
  ASSERT_DONE(through_door<Call::cuStreamDestroy_v2>(stream));
  EXPECT_FALSE(is_pending());
  Memory& memory = Engine::get()->serving()->memory;
  ASSERT_TRUE(memory.clock().wait_for_everything(now_ns() + in_ns(timeout)));
  // Behind cuvmm's back, and unordered with every stream: the copy has already read this memory.
  const GivenStream beside;
  const std::vector<std::uint32_t> other(block / 4, 9);
  ASSERT_CUDA(driver().cuMemcpyHtoDAsync(a, other.data(), block, beside.get()));
  ASSERT_CUDA(driver().cuStreamSynchronize(beside.get()));
  expect_filled(b, block, 1);
  EXPECT_TRUE(was_put_off) << why_run();
  EXPECT_DONE(free(a));
  EXPECT_DONE(free(b));
}

}  // namespace
}  // namespace cuvmm::test
