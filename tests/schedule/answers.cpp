// SPDX-License-Identifier: Apache-2.0
// Calls that only the driver can answer, with work queued before them.
#include <array>
#include <cstdlib>
#include <functional>

#include "base/log.hpp"
#include "schedule/schedule_world.hpp"

namespace cuvmm::test {
namespace {

constexpr int queued_launches = 300;

class Answers : public testing::Test {
 protected:
  Answers() {
    client_.bind();
    GIVEN(hooked().cuMemAlloc(&memory_, 4096));
  }
  ~Answers() override {
    is_held_ = false;
    EXPECT_CUDA(hooked().cuCtxSynchronize_v2000());
    EXPECT_CUDA(hooked().cuMemFree(memory_));
  }
  // More work than may be in flight behind a host function, so that what follows stays queued.
  void fill_the_lane() {
    const auto wait = [](void* held) {
      while (*static_cast<std::atomic<bool>*>(held)) ::usleep(100);
    };
    ASSERT_CUDA(hooked().cuLaunchHostFunc(stream_, wait, &is_held_));
    for (int i = 0; i < queued_launches; ++i) {
      ASSERT_CUDA(launch_hooked(kernels_.fill, stream_.get(), std::uint64_t{memory_}, 1u, 1u));
    }
  }

  const StreamState* stream_state() const {
    return scheduling().parts()->streams.find({.handle = stream_});
  }

  const Deadline deadline_;
  const GivenContext context_;
  const Kernels kernels_;
  const Scheduled scheduled_{Schedule::Fifo};
  const GivenClient client_{"client"};
  const HookedStream stream_;
  CUdeviceptr memory_ = 0;
  std::atomic<bool> is_held_{true};
};

class ElapsedTimes : public Answers {
 protected:
  ElapsedTimes() {
    for (CUevent& event : timed_) GIVEN(hooked().cuEventCreate(&event, CU_EVENT_DEFAULT));
    GIVEN(hooked().cuEventCreate(&untimed_, CU_EVENT_DISABLE_TIMING));
  }
  ~ElapsedTimes() override {
    for (CUevent event : {timed_[0], timed_[1], untimed_})
      EXPECT_CUDA(hooked().cuEventDestroy(event));
  }
  CUresult ask(CUevent first, CUevent second) {
    return hooked().cuEventElapsedTime_v2000(&milliseconds_, first, second);
  }

  CUevent timed_[2] = {};
  CUevent untimed_ = nullptr;
  float milliseconds_ = -1;
};

TEST_F(ElapsedTimes, OfQueuedRecordsAreNotReady) {
  for (CUevent event : timed_) ASSERT_CUDA(hooked().cuEventRecord(event, stream_));
  ASSERT_CUDA(hooked().cuStreamSynchronize(stream_));
  ASSERT_CUDA(ask(timed_[0], timed_[1]));
  milliseconds_ = -1;
  fill_the_lane();
  for (CUevent event : timed_) ASSERT_CUDA(hooked().cuEventRecord(event, stream_));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, ask(timed_[0], timed_[1]));
  EXPECT_EQ(milliseconds_, -1);
  EXPECT_TRUE(scheduled_.scheduler().has_unissued(timed_[0])) << "a query waits for nothing";
}

TEST_F(ElapsedTimes, BetweenAQueuedRecordAndAnEventWithoutATimeAreRefused) {
  fill_the_lane();
  ASSERT_CUDA(hooked().cuEventRecord(timed_[0], stream_));
  ASSERT_CUDA(hooked().cuEventRecord(untimed_, stream_));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, ask(timed_[0], timed_[1])) << "never recorded";
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, ask(timed_[0], untimed_));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                hooked().cuEventElapsedTime_v2000(nullptr, timed_[0], timed_[0]));
  is_held_ = false;
  ASSERT_CUDA(hooked().cuStreamSynchronize(stream_));
  EXPECT_CUDA(ask(timed_[0], timed_[0]));
}

TEST_F(Answers, ACopyOfAnUnknownTypeOfMemoryIsRefusedAtTheCall) {
  CUDA_MEMCPY2D copy{};
  copy.srcDevice = memory_;
  copy.dstDevice = memory_ + 2048;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.WidthInBytes = 16;
  copy.Height = 1;
  for (const int type : {0, 7}) {
    copy.srcMemoryType = static_cast<CUmemorytype>(type);
    EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, hooked().cuMemcpy2DAsync(&copy, stream_));
  }
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  EXPECT_CUDA(hooked().cuMemcpy2DAsync(&copy, stream_));
  EXPECT_CUDA(hooked().cuStreamSynchronize(stream_));
}

TEST_F(Answers, AnAttributeThatNoLaunchTakesIsRefusedAtTheCall) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream_;
  config.attrs = &attribute;
  config.numAttrs = 1;
  std::uint64_t address = memory_;
  std::uint32_t value = 1;
  std::uint32_t words = 1;
  void* parameters[] = {&address, &value, &words};
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                hooked().cuLaunchKernelEx(&config, kernels_.fill, parameters, nullptr));
  EXPECT_CUDA(hooked().cuStreamSynchronize(stream_));
}

TEST_F(Answers, AFreeOfMemoryThatNoStreamFreesIsRefusedAtTheCall) {
  CUdeviceptr managed = 0;
  ASSERT_CUDA(hooked().cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  void* host = nullptr;
  ASSERT_CUDA(hooked().cuMemAllocHost(&host, 4096));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, hooked().cuMemFreeAsync(managed, stream_));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                hooked().cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(host), stream_));
  EXPECT_CUDA(hooked().cuStreamSynchronize(stream_));
  EXPECT_CUDA(hooked().cuMemFreeHost(host));
  EXPECT_CUDA(hooked().cuMemFree(managed));
}

TEST_F(Answers, ADeviceCopyFromPageableMemoryIsRefusedAtTheCall) {
  std::uint32_t word = 7;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                hooked().cuMemcpyDtoDAsync(memory_, reinterpret_cast<CUdeviceptr>(&word),
                                           sizeof word, stream_));
  EXPECT_CUDA(hooked().cuStreamSynchronize(stream_));
}

// The call that reports the error names a handle of the failed context while another is current.
TEST_F(Answers, NothingIsQueuedUntilTheContextThatFailedHasEnded) {
  const auto reports = std::to_array<std::function<CUresult(CUcontext, CUstream, CUevent)>>({
      [](CUcontext, CUstream stream, CUevent) { return hooked().cuStreamSynchronize(stream); },
      [](CUcontext, CUstream stream, CUevent) { return hooked().cuStreamQuery(stream); },
      [](CUcontext, CUstream, CUevent event) { return hooked().cuEventSynchronize(event); },
      [](CUcontext, CUstream, CUevent event) { return hooked().cuEventQuery(event); },
      [](CUcontext context, CUstream, CUevent) { return hooked().cuCtxSynchronize(context); },
  });
  for (const auto& report : reports) {
    CUcontext unrelated = nullptr;
    ASSERT_CUDA(hooked().cuCtxCreate_v3020(&unrelated, 0, 0));
    const auto [lost, fill, stream, event] = DoomedContext{CU_STREAM_NON_BLOCKING};
    EXPECT_CUDA(launch_hooked(fill, stream, std::uint64_t{0x1000}, 1u, 1u));
    EXPECT_CUDA(hooked().cuEventRecord(event, stream));
    scheduled_.scheduler().settle_all();
    while (driver().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) ::usleep(100);
    ASSERT_CUDA(hooked().cuCtxSetCurrent(unrelated));
    EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS, report(lost, stream, event));
    EXPECT_CUDA(hooked().cuCtxDestroy(unrelated));
    ASSERT_CUDA(hooked().cuCtxSetCurrent(lost));
    EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS,
                  launch_hooked(fill, stream, std::uint64_t{0x1000}, 1u, 1u));
    context_.make_current();
    hooked().cuCtxDestroy(lost);

    is_held_ = true;
    fill_the_lane();
    EXPECT_TRUE(scheduled_.scheduler().has_unissued(*stream_state()));
    is_held_ = false;
    EXPECT_CUDA(hooked().cuStreamSynchronize(stream_));
  }
}

class LimitedMemory : public Answers {};

// The free is issued only because the allocation lacks memory. Needs VMM_LIMIT=64M.
TEST_F(LimitedMemory, AnAllocationThatAQueuedFreeHelpsIsNotReportedAsRefused) {
  if (std::getenv("VMM_LIMIT") == nullptr) GTEST_SKIP() << "needs VMM_LIMIT=64M";
  constexpr std::size_t most_of_it = 48 << 20;
  CUdeviceptr freed = 0;
  ASSERT_CUDA(hooked().cuMemAllocAsync(&freed, most_of_it, stream_));
  ASSERT_CUDA(hooked().cuStreamSynchronize(stream_));
  testing::internal::CaptureStderr();
  detail::look_at_standard_error();
  fill_the_lane();
  ASSERT_CUDA(hooked().cuMemFreeAsync(freed, stream_));
  std::thread helps{[&] {
    while (!client_.get().lane(0)->is_empty()) ::usleep(100);
    is_held_ = false;
  }};
  CUdeviceptr memory = 0;
  EXPECT_CUDA(hooked().cuMemAlloc(&memory, most_of_it));
  EXPECT_TRUE(client_.get().lane(0)->is_empty());
  is_held_ = false;
  helps.join();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("out of memory"), std::string::npos) << said;
  EXPECT_CUDA(hooked().cuMemFree(memory));
}

}  // namespace
}  // namespace cuvmm::test
