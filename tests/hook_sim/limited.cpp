// SPDX-License-Identifier: Apache-2.0
// Memory that the driver serves counts against VMM_LIMIT: during a live capture, arrays, managed
// memory, and pools that cuvmm does not serve.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "hook_sim/on_primary_context.hpp"
#include "hook_sim/stand_ins.hpp"

namespace cuvmm::test {
namespace {

constexpr Size limit = 64 * MiB;  // as in tests/CMakeLists.txt
constexpr Size half = limit / 2;

class LimitedBesideACapture : public ::testing::Test {
 protected:
  void SetUp() override {
    open_driver();
    ASSERT_DONE(through_door<Call::cuInit>(0u));
    Serving* const serving = Engine::get()->serving();
    if (serving == nullptr || !serving->memory.native().counts()) GTEST_SKIP() << "no limit";
    ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context_, 0));
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    captured_ = given_stream();
    other_ = given_stream();
    ASSERT_DONE(
        through_door<Call::cuStreamBeginCapture_v2>(captured_, CU_STREAM_CAPTURE_MODE_RELAXED));
  }
  void TearDown() override {
    if (context_ == nullptr) return;
    end_capture();
    EXPECT_EQ(native(), 0U) << "all of it was freed";
    EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
  }

  static CUstream given_stream() {
    CUstream stream = nullptr;
    EXPECT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
    return stream;
  }
  void end_capture() {
    CUgraph graph = nullptr;
    through_door<Call::cuStreamEndCapture>(captured_, &graph);
    if (graph != nullptr) {
      EXPECT_DONE(through_door<Call::cuGraphDestroy>(graph));
    }
  }
  static CUresult allocate(CUdeviceptr* address, Size size) {
    return through_door<Call::cuMemAlloc_v2>(address, std::size_t{size});
  }
  static void free(CUdeviceptr address) { EXPECT_DONE(through_door<Call::cuMemFree_v2>(address)); }
  static Size native() { return Engine::get()->serving()->memory.counters(0).native; }
  static Size told_free() {
    size_t free = 0;
    size_t total = 0;
    EXPECT_DONE(through_door<Call::cuMemGetInfo_v2>(&free, &total));
    return free;
  }

  CUcontext context_ = nullptr;
  CUstream captured_ = nullptr;
  CUstream other_ = nullptr;
};

TEST_F(LimitedBesideACapture, BlockingMemoryCounts) {
  CUdeviceptr beside = 0;
  ASSERT_DONE(allocate(&beside, half));
  EXPECT_EQ(native(), half);
  EXPECT_LE(told_free(), half);
  end_capture();
  CUdeviceptr more = 0;
  EXPECT_EQ(allocate(&more, half + 4 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
  free(beside);
  EXPECT_DONE(allocate(&more, half + 4 * MiB));
  free(more);
}

TEST_F(LimitedBesideACapture, PitchedAndManagedMemoryCount) {
  CUdeviceptr pitched = 0;
  size_t pitch = 0;
  ASSERT_DONE(through_door<Call::cuMemAllocPitch_v2>(&pitched, &pitch, std::size_t{512},
                                                     std::size_t{4096}, 4u));
  EXPECT_EQ(native(), Size{pitch * 4096});
  free(pitched);
  EXPECT_EQ(native(), 0U);
  CUdeviceptr managed = 0;
  ASSERT_DONE(through_door<Call::cuMemAllocManaged>(&managed, std::size_t{4 * MiB},
                                                    unsigned{CU_MEM_ATTACH_GLOBAL}));
  EXPECT_EQ(native(), 4 * MiB);
  free(managed);
}

// Memory allocated on a captured stream belongs to its graph.
TEST_F(LimitedBesideACapture, PoolMemoryCountsUnlessItsStreamIsCaptured) {
  const CUmemPoolProps shareable{.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  CUmemoryPool pool = nullptr;
  ASSERT_DONE(through_door<Call::cuMemPoolCreate>(&pool, &shareable));
  CUdeviceptr counted = 0;
  ASSERT_DONE(
      through_door<Call::cuMemAllocFromPoolAsync>(&counted, std::size_t{half}, pool, other_));
  EXPECT_EQ(native(), half);
  CUdeviceptr of_the_graph = 0;
  ASSERT_DONE(through_door<Call::cuMemAllocAsync>(&of_the_graph, std::size_t{half}, captured_));
  EXPECT_EQ(native(), half);
  EXPECT_DONE(through_door<Call::cuMemFreeAsync>(counted, other_));
  EXPECT_DONE(through_door<Call::cuMemPoolDestroy>(pool));
}

class LimitedNativeMemory : public OnPrimaryContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    Serving* const serving = Engine::get()->serving();
    if (serving == nullptr || !serving->memory.native().counts()) GTEST_SKIP() << "no limit";
  }

  static Size native(int device = 0) {
    return Engine::get()->serving()->memory.counters(device).native;
  }
  static CUarray given_array() {
    const CUDA_ARRAY_DESCRIPTOR shape{
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array = nullptr;
    EXPECT_DONE(through_door<Call::cuArrayCreate_v2>(&array, &shape));
    return array;
  }
  static CUdeviceptr given_managed() {
    CUdeviceptr managed = 0;
    EXPECT_DONE(through_door<Call::cuMemAllocManaged>(&managed, std::size_t{4 * MiB},
                                                      unsigned{CU_MEM_ATTACH_GLOBAL}));
    return managed;
  }
  static CUmemoryPool given_pool(CUmemLocation location, CUmemAllocationHandleType handles) {
    const CUmemPoolProps wanted{
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = handles, .location = location};
    CUmemoryPool pool = nullptr;
    EXPECT_DONE(through_door<Call::cuMemPoolCreate>(&pool, &wanted));
    return pool;
  }
  static CUmemoryPool given_shareable_pool(int device) {
    return given_pool({CU_MEM_LOCATION_TYPE_DEVICE, {device}},
                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  }
  static CUdeviceptr given_from(CUmemoryPool pool) {
    CUdeviceptr address = 0;
    EXPECT_DONE(through_door<Call::cuMemAllocFromPoolAsync>(&address, std::size_t{half}, pool,
                                                            CU_STREAM_LEGACY));
    return address;
  }
  static void free(CUdeviceptr address) {
    EXPECT_DONE(through_door<Call::cuMemFreeAsync>(address, CU_STREAM_LEGACY));
  }
};

TEST_F(LimitedNativeMemory, NoLongerCountsOnceItsContextHasEnded) {
  const CUarray stays = given_array();
  const Size of_an_array = native();
  EXPECT_EQ(of_an_array, 4 * MiB);
  CUcontext other = nullptr;
  CUctxCreateParams parameters{};
  ASSERT_DONE(through_door<Call::cuCtxCreate_v4>(&other, &parameters, 0u, 0));
  given_array();
  given_managed();
  EXPECT_EQ(native(), 2 * of_an_array + 4 * MiB);
  ASSERT_DONE(through_door<Call::cuCtxDestroy_v2>(other));
  EXPECT_EQ(native(), of_an_array) << "the other context still has its array";
  EXPECT_DONE(through_door<Call::cuArrayDestroy>(stays));
  EXPECT_EQ(native(), 0U);
}

TEST_F(LimitedNativeMemory, NoLongerCountsOnceThePrimaryContextWasReset) {
  given_array();
  given_managed();
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
  EXPECT_EQ(native(), 0U);
}

TEST_F(LimitedNativeMemory, OfAGreenContextCountsUntilThePrimaryContextEnds) {
  const CUgreenCtx green = given_green_context();
  CUcontext context = nullptr;
  ASSERT_DONE(through_door<Call::cuCtxFromGreenCtx>(&context, green));
  ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context));
  const CUarray array = given_array();
  ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
  const Size counted = native();
  EXPECT_DONE(through_door<Call::cuGreenCtxDestroy>(green));
  EXPECT_EQ(native(), counted);
  static_cast<void>(array);  // the stand-in's context has taken it along
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
  EXPECT_EQ(native(), 0U);
}

TEST_F(LimitedNativeMemory, OfAPoolOutlivesTheContext) {
  CUcontext other = nullptr;
  CUctxCreateParams parameters{};
  ASSERT_DONE(through_door<Call::cuCtxCreate_v4>(&other, &parameters, 0u, 0));
  const CUmemoryPool pool = given_shareable_pool(0);
  const CUdeviceptr block = given_from(pool);
  ASSERT_DONE(through_door<Call::cuCtxDestroy_v2>(other));
  ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
  EXPECT_EQ(native(), half);
  free(block);
  EXPECT_EQ(native(), 0U);
  EXPECT_DONE(through_door<Call::cuMemPoolDestroy>(pool));
}

// The context of device 0 is current.
TEST_F(LimitedNativeMemory, OfAPoolCountsOnThePoolsDevice) {
  int devices = 0;
  ASSERT_DONE(through_door<Call::cuDeviceGetCount>(&devices));
  ASSERT_GE(devices, 2) << "see tests/CMakeLists.txt";
  const CUmemoryPool pool = given_shareable_pool(1);
  const CUdeviceptr block = given_from(pool);
  EXPECT_EQ(native(0), 0U);
  EXPECT_EQ(native(1), half);
  free(block);
  EXPECT_EQ(native(1), 0U);
  EXPECT_DONE(through_door<Call::cuMemPoolDestroy>(pool));
}

// The device then has its default pool as the current one again.
TEST_F(LimitedNativeMemory, IsNotNeededWhileAnotherThreadEndsTheCurrentPool) {
  std::vector<CUdeviceptr> cached(limit / MiB);
  for (CUdeviceptr& block : cached) {
    ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&block, std::size_t{MiB}));
  }
  for (const CUdeviceptr block : cached) free(block);
  std::atomic<bool> ends{false};
  std::thread allocates{[&] {
    EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    CUstream stream = nullptr;
    EXPECT_DONE(through_door<Call::cuStreamCreate>(&stream, unsigned{CU_STREAM_NON_BLOCKING}));
    while (!ends) {
      CUdeviceptr block = 0;
      const CUresult answer = through_door<Call::cuMemAllocAsync>(&block, std::size_t{MiB}, stream);
      EXPECT_DONE(answer);
      if (answer != CUDA_SUCCESS) break;
      EXPECT_DONE(through_door<Call::cuMemFreeAsync>(block, stream));
      EXPECT_DONE(through_door<Call::cuStreamSynchronize>(stream));
    }
    EXPECT_DONE(through_door<Call::cuStreamDestroy_v2>(stream));
  }};
  for (int i = 0; i < 3000 && !HasFailure(); ++i) {
    const CUmemoryPool pool =
        given_pool({CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_HANDLE_TYPE_NONE);
    EXPECT_DONE(through_door<Call::cuDeviceSetMemPool>(0, pool));
    EXPECT_DONE(through_door<Call::cuMemPoolDestroy>(pool));
  }
  ends = true;
  allocates.join();
}

TEST_F(LimitedNativeMemory, OfAPoolOfTheHostDoesNotCount) {
  const CUmemoryPool pool = given_pool({CU_MEM_LOCATION_TYPE_HOST, {0}}, CU_MEM_HANDLE_TYPE_NONE);
  const CUdeviceptr block = given_from(pool);
  EXPECT_EQ(native(), 0U);
  free(block);
  EXPECT_EQ(native(), 0U);
  EXPECT_DONE(through_door<Call::cuMemPoolDestroy>(pool));
}

}  // namespace
}  // namespace cuvmm::test
