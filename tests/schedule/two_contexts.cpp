// SPDX-License-Identifier: Apache-2.0
// Copies on the legacy stream that name another context's memory: work of both contexts.
#include "schedule/schedule_world.hpp"

namespace cuvmm::test {
namespace {

constexpr unsigned more_than_may_be_in_flight = 300;

class TwoContexts : public testing::Test {
 protected:
  TwoContexts() {
    GIVEN(hooked().cuMemAlloc(&mine_, 4));
    GIVEN(hooked().cuMemsetD32(mine_, 0, 1));
    GIVEN(hooked().cuStreamCreate(&stream_, CU_STREAM_DEFAULT));
    GIVEN(hooked().cuCtxSynchronize_v2000());
    GIVEN(hooked().cuCtxCreate_v3020(&other_, 0, 0));
    GIVEN(hooked().cuMemAlloc(&others_, 4));
    GIVEN(hooked().cuMemsetD32(others_, 0, 1));
    GIVEN(hooked().cuStreamCreate(&others_stream_, CU_STREAM_DEFAULT));
    GIVEN(hooked().cuCtxSynchronize_v2000());
    context_.make_current();
  }
  ~TwoContexts() override {
    is_held_ = false;
    EXPECT_CUDA(hooked().cuStreamDestroy(stream_));
    EXPECT_CUDA(hooked().cuMemFree(mine_));
    EXPECT_CUDA(hooked().cuCtxDestroy(other_));
    context_.make_current();
  }

  // Sets the word to 1, 2, … behind a host function that waits for the end of the test.
  void queue_sets(CUstream stream, CUdeviceptr word) {
    ASSERT_CUDA(hooked().cuLaunchHostFunc(stream, &TwoContexts::wait, this));
    for (unsigned i = 1; i <= more_than_may_be_in_flight; ++i) {
      ASSERT_CUDA(hooked().cuMemsetD32Async(word, i, 1, stream));
    }
  }
  std::uint32_t word_at(CUdeviceptr address) {
    is_held_ = false;
    std::uint32_t found = 0;
    EXPECT_CUDA(hooked().cuCtxSynchronize_v2000());
    EXPECT_CUDA(hooked().cuMemcpyDtoH(&found, address, 4));
    return found;
  }
  void queue_sets_in_the_other_context() {
    GIVEN(hooked().cuCtxSetCurrent(other_));
    queue_sets(others_stream_, others_);
    context_.make_current();
  }

  const Deadline deadline_;
  const GivenContext context_;
  const Scheduled scheduled_{Schedule::Fifo};
  const GivenClient client_{"client"};
  const GivenClient second_{"second"};
  CUdeviceptr mine_ = 0;
  CUdeviceptr others_ = 0;
  CUcontext other_ = nullptr;
  CUstream stream_ = nullptr;
  CUstream others_stream_ = nullptr;

 private:
  static void wait(void* data) {
    while (static_cast<TwoContexts*>(data)->is_held_) {
      std::this_thread::sleep_for(std::chrono::microseconds{100});
    }
  }
  std::atomic<bool> is_held_{true};
};

TEST_F(TwoContexts, ACopyToTheOthersMemoryIsIssuedWhenItReturns) {
  client_.bind();
  queue_sets(stream_, mine_);
  ASSERT_CUDA(hooked().cuMemcpyDtoD(others_, mine_, 4));
  EXPECT_TRUE(client_.get().lane(0)->is_empty()) << "the other context's wait would miss it";
  GIVEN(hooked().cuCtxSetCurrent(other_));
  EXPECT_EQ(word_at(others_), more_than_may_be_in_flight);
  context_.make_current();
}

TEST_F(TwoContexts, ACopyComesAfterTheOthersQueuedWork) {
  client_.bind();
  queue_sets_in_the_other_context();
  second_.bind();
  ASSERT_CUDA(hooked().cuMemcpyDtoD(mine_, others_, 4));
  EXPECT_TRUE(client_.get().lane(0)->is_empty());
  EXPECT_EQ(word_at(mine_), more_than_may_be_in_flight);
}

TEST_F(TwoContexts, ACopyWithoutAClientComesAfterTheOthersQueuedWork) {
  client_.bind();
  queue_sets_in_the_other_context();
  scheduled_.scheduler().bind_this_thread(nullptr);
  ASSERT_CUDA(hooked().cuMemcpyDtoD(mine_, others_, 4));
  EXPECT_TRUE(client_.get().lane(0)->is_empty());
  EXPECT_EQ(word_at(mine_), more_than_may_be_in_flight);
}

TEST_F(TwoContexts, ASetOfTheOthersMemoryComesAfterItsQueuedWork) {
  client_.bind();
  queue_sets_in_the_other_context();
  second_.bind();
  ASSERT_CUDA(hooked().cuMemsetD32(others_, 7, 1));
  EXPECT_TRUE(client_.get().lane(0)->is_empty());
  EXPECT_EQ(word_at(others_), 7U);
}

}  // namespace
}  // namespace cuvmm::test
