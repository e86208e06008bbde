// SPDX-License-Identifier: Apache-2.0
// Memory of ours that lies on the host: the driver waits in a copy between it and host memory.
#include <array>

#include "schedule/schedule_world.hpp"

namespace cuvmm::test {
namespace {

constexpr std::size_t size = 4 << 20;
constexpr int blocks_that_exceed_the_limit = 24;

class ScheduledSpill : public testing::Test {
 protected:
  void SetUp() override {
    const Serving* const serving = Engine::get()->serving();
    if (serving == nullptr || Engine::get()->options().spill.to != SpillTo::Host) {
      GTEST_SKIP() << "needs VMM_SPILL=host and VMM_LIMIT=64M";
    }
    for (CUdeviceptr& block : blocks_) GIVEN(hooked().cuMemAlloc(&block, size));
    GIVEN(hooked().cuMemHostAlloc(&pinned_, size, 0));
  }
  void TearDown() override {
    is_held_ = false;
    for (const CUdeviceptr block : blocks_) {
      if (block == 0) continue;
      EXPECT_CUDA(hooked().cuMemFree(block));
    }
    if (pinned_ == nullptr) return;
    EXPECT_CUDA(hooked().cuMemFreeHost(pinned_));
  }
  static void wait(void* held) {
    while (*static_cast<std::atomic<bool>*>(held)) {
      std::this_thread::sleep_for(std::chrono::microseconds{100});
    }
  }

  const Deadline deadline_;
  const GivenContext context_;
  const Scheduled scheduled_{Schedule::Fifo};
  const GivenClient client_{"client"};
  const GivenClient other_{"other"};
  std::array<CUdeviceptr, blocks_that_exceed_the_limit> blocks_{};
  void* pinned_ = nullptr;
  std::atomic<bool> is_held_{true};
};

TEST_F(ScheduledSpill, ACopyFromTheHostDelaysNoOtherClient) {
  const HookedStream stream;
  const HookedStream others;
  std::thread copies{[&] {
    context_.make_current();
    client_.bind();
    EXPECT_CUDA(hooked().cuLaunchHostFunc(stream, &ScheduledSpill::wait, &is_held_));
    EXPECT_CUDA(hooked().cuMemcpyHtoDAsync(blocks_.back(), pinned_, size, stream));
  }};
  while (client_.get().figures().operations < 2) ::usleep(100);  // until the copy is issued
  other_.bind();
  EXPECT_CUDA(hooked().cuMemsetD32Async(blocks_.front(), 1, 1, others));
  CUresult answer = CUDA_ERROR_NOT_READY;
  for (int i = 0; i < 10'000 && answer == CUDA_ERROR_NOT_READY; ++i) {
    ::usleep(1000);
    answer = hooked().cuStreamQuery(others);
  }
  EXPECT_CUDA(answer) << "the issuing thread waits in the other client's copy";
  is_held_ = false;
  copies.join();
  EXPECT_CUDA(hooked().cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace cuvmm::test
