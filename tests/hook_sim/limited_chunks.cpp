// SPDX-License-Identifier: Apache-2.0
// Chunks that the program creates itself keep to VMM_LIMIT, and cuvmm's own memory makes way for
// them.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "hook_sim/on_primary_context.hpp"
#include "hook_sim/simulated.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

class LimitedChunks : public OnPrimaryContext {
 protected:
  using Handle = CUmemGenericAllocationHandle;
  static constexpr Size granule = 2 * MiB;
  static constexpr Size limit = 64 * MiB;  // as in tests/CMakeLists.txt
  static constexpr Size half = limit / 2;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    Serving* const serving = Engine::get()->serving();
    if (serving == nullptr || !serving->memory.native().counts()) GTEST_SKIP() << "no limit";
  }
  void TearDown() override {
    fail_calls("");
    for (const Handle chunk : chunks_) release(chunk);
    if (Engine::get()->serving() != nullptr) {
      EXPECT_EQ(native(), 0U) << "all of it was released";
    }
    OnPrimaryContext::TearDown();
  }

  static CUresult create(Handle* chunk, Size size,
                         CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE) {
    const CUmemAllocationProp wanted{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .requestedHandleTypes = types,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                     .win32HandleMetaData = nullptr,
                                     .allocFlags = {}};
    return through_door<Call::cuMemCreate>(chunk, std::size_t{size}, &wanted, 0ull);
  }
  CUresult create(Size size) {
    Handle chunk = 0;
    const CUresult answer = create(&chunk, size);
    if (answer == CUDA_SUCCESS) chunks_.push_back(chunk);
    return answer;
  }
  static void release(Handle chunk) { EXPECT_DONE(through_door<Call::cuMemRelease>(chunk)); }
  static Size native() { return Engine::get()->serving()->memory.counters(0).native; }

  std::vector<Handle> chunks_;
};

TEST_F(LimitedChunks, AreRefusedBeyondTheLimitAndNotWithinIt) {
  EXPECT_DONE(create(half));
  EXPECT_DONE(create(half - granule));
  EXPECT_EQ(create(half), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(create(2 * granule), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_DONE(create(granule));
  EXPECT_EQ(native(), limit);
  release(chunks_.front());
  chunks_.erase(chunks_.begin());
  EXPECT_DONE(create(half));
}

TEST_F(LimitedChunks, FindNoRoomBesideAllocationsInUse) {
  CUdeviceptr block = 0;
  ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&block, std::size_t{half}));
  EXPECT_EQ(create(half + granule), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_DONE(create(half));
  CUdeviceptr more = 0;
  EXPECT_EQ(through_door<Call::cuMemAlloc_v2>(&more, std::size_t{granule}),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_DONE(through_door<Call::cuMemFree_v2>(block));
}

TEST_F(LimitedChunks, GetTheMemoryThatIsCached) {
  std::vector<CUdeviceptr> blocks(8);
  for (CUdeviceptr& block : blocks) {
    ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&block, std::size_t{limit / 8}));
  }
  for (const CUdeviceptr block : blocks) EXPECT_DONE(through_door<Call::cuMemFree_v2>(block));
  EXPECT_DONE(create(limit));
}

TEST_F(LimitedChunks, AwaitPendingFrees) {
  CUstream stream = nullptr;
  ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
  CUdeviceptr block = 0;
  ASSERT_DONE(through_door<Call::cuMemAllocAsync>(&block, std::size_t{half}, stream));
  std::atomic<bool> may_end{false};
  ASSERT_DONE(
      through_door<Call::cuLaunchHostFunc>(stream, until_it_may, static_cast<void*>(&may_end)));
  ASSERT_DONE(through_door<Call::cuMemFreeAsync>(block, stream));
  std::thread ends{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    may_end = true;
  }};
  EXPECT_DONE(create(limit));
  EXPECT_TRUE(may_end);
  ends.join();
  EXPECT_DONE(through_door<Call::cuStreamDestroy_v2>(stream));
}

TEST_F(LimitedChunks, FillTheLimitExactlyWhenThreadsCompete) {
  std::vector<std::thread> threads;
  std::atomic<Size> given{0};
  std::vector<std::vector<Handle>> of_threads(4);
  for (auto& chunks : of_threads) {
    threads.emplace_back([&] {
      EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
      for (Handle chunk = 0; create(&chunk, granule) == CUDA_SUCCESS; given += granule) {
        chunks.push_back(chunk);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(given, limit);
  EXPECT_EQ(native(), limit);
  for (const auto& chunks : of_threads) chunks_.insert(chunks_.end(), chunks.begin(), chunks.end());
}

TEST_F(LimitedChunks, AreNotChargedIfTheDriverRefusesThem) {
  ASSERT_DONE(create(granule));
  fail_calls("cuMemCreate:1=CUDA_ERROR_UNKNOWN");
  EXPECT_EQ(create(half), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(native(), granule);
  std::string always;  // each attempt
  for (int number = 1; number <= 40; ++number) {
    if (number != 1) always += ',';
    always += "cuMemCreate:" + std::to_string(number) + "=CUDA_ERROR_OUT_OF_MEMORY";
  }
  fail_calls(always);
  EXPECT_EQ(create(half), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(native(), granule);
  fail_calls("");
  EXPECT_DONE(create(limit - granule));
}

TEST_F(LimitedChunks, ATransientLackOfMemoryIsRetried) {
  fail_calls("cuMemCreate:1=CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_DONE(create(half));
  EXPECT_EQ(native(), half);
}

// The driver's own refusals stay what they are.
TEST_F(LimitedChunks, InvalidRequestsAreAnsweredByTheDriver) {
  ASSERT_DONE(create(limit));
  EXPECT_EQ(create(granule + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(native(), limit);
}

// A program that is refused a fabric handle falls back to another type, but not if memory is short.
TEST_F(LimitedChunks, UnsupportedHandleTypesAreRefusedAsSuchAtTheLimitToo) {
  Handle chunk = 0;
  EXPECT_EQ(create(&chunk, granule, CU_MEM_HANDLE_TYPE_FABRIC), CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_DONE(create(limit));
  EXPECT_EQ(create(&chunk, granule, CU_MEM_HANDLE_TYPE_FABRIC), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(native(), limit);
}

// It takes what cuvmm keeps for other allocations, however fast another thread uses that again.
TEST_F(LimitedChunks, FitDuringACaptureBesideAnAllocatingThread) {
  constexpr Size share = 7 * granule;  // less than a quarter of the limit
  std::atomic<bool> ends{false};
  std::jthread allocates{[&] {
    EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    for (Size largest = granule; !ends; largest = largest % share + granule) {
      std::vector<CUdeviceptr> blocks;
      for (Size left = share, size = largest; left >= granule; size = granule) {
        size = std::min(size, left);
        left -= size;
        through_door<Call::cuMemAlloc_v2>(&blocks.emplace_back(), std::size_t{size});
      }
      for (const CUdeviceptr block : blocks) through_door<Call::cuMemFree_v2>(block);
    }
  }};
  CUstream stream = nullptr;
  EXPECT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
  std::uint64_t refusals = 0;
  for (std::uint64_t i = 0; i < scaled(5000); ++i) {
    CUgraph graph = nullptr;
    EXPECT_DONE(
        through_door<Call::cuStreamBeginCapture_v2>(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    Handle chunk = 0;
    const CUresult answer = create(&chunk, granule * (1 + i % (share / granule)));
    if (answer == CUDA_SUCCESS) {
      release(chunk);
    } else {
      ++refusals;
    }
    EXPECT_DONE(through_door<Call::cuStreamEndCapture>(stream, &graph));
    EXPECT_DONE(through_door<Call::cuGraphDestroy>(graph));
  }
  ends = true;
  allocates.join();
  EXPECT_DONE(through_door<Call::cuStreamDestroy_v2>(stream));
  EXPECT_EQ(refusals, 0U);
}

}  // namespace
}  // namespace cuvmm::test
