// SPDX-License-Identifier: Apache-2.0
// Contexts that end and begin in several threads at once. A new context may have the handle of one
// that the driver has ended and cuvmm has not yet forgotten.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "engine/ending_contexts.hpp"
#include "hook_sim/doors.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

CUcontext some_context(std::uintptr_t number) {
  return reinterpret_cast<CUcontext>(number);
}

TEST(EndingContexts, ANewContextWaitsOnlyForTheEndOfItsOwnHandle) {
  EndingContexts contexts;
  std::atomic<bool> has_begun{false};
  std::thread beginning;
  {
    const EndingContexts::Ending ending{contexts, some_context(1)};
    contexts.wait_until_ended(some_context(2));
    const std::uint64_t began = now_ns();
    beginning = std::thread([&] {
      contexts.wait_until_ended(some_context(1));
      has_begun = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    // It waits no longer than a second, which may have passed on a busy machine.
    EXPECT_TRUE(!has_begun || now_ns() - began >= 1'000'000'000U);
  }
  beginning.join();
  EXPECT_TRUE(has_begun);
}

TEST(EndingContexts, ANewContextDoesNotWaitForever) {
  EndingContexts contexts;
  const EndingContexts::Ending ending{contexts, some_context(1)};
  const std::uint64_t began = now_ns();
  contexts.wait_until_ended(some_context(1));
  EXPECT_GE(now_ns() - began, 900'000'000U);
}

TEST(EndingContexts, AnEndWaitsWhileAContextIsUsed) {
  EndingContexts contexts;
  std::atomic<bool> has_waited{false};
  std::optional<EndingContexts::Use> use{contexts};
  EXPECT_TRUE(use->is_granted());
  const std::uint64_t began = now_ns();
  std::thread ending{[&] {
    const EndingContexts::Ending waits{contexts, some_context(1)};
    has_waited = true;
  }};
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  EXPECT_TRUE(!has_waited || now_ns() - began >= 1'000'000'000U);
  use.reset();
  ending.join();
  EXPECT_TRUE(has_waited);
}

TEST(EndingContexts, NoContextMayBeUsedWhileOneEnds) {
  EndingContexts contexts;
  {
    const EndingContexts::Ending ending{contexts, some_context(1)};
    EXPECT_FALSE(EndingContexts::Use{contexts}.is_granted());
  }
  EXPECT_TRUE(EndingContexts::Use{contexts}.is_granted());
}

// One life of a context: data written in it is intact at its end.
void live(std::uint32_t mark, std::atomic<int>& failures) {
  const auto count = [&](CUresult answer) { failures += answer != CUDA_SUCCESS; };
  constexpr std::size_t size = 128 * KiB;
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  std::uint32_t found = 0;
  count(through_door<Call::cuCtxCreate_v2>(&context, 0u, 0));
  count(through_door<Call::cuMemAlloc_v2>(&block, size));
  count(through_door<Call::cuMemsetD32_v2>(block, mark, size / 4));
  std::this_thread::yield();
  count(through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(&found), block + size - 4,
                                            sizeof found));
  failures += found != mark;
  if (mark % 2 == 0) count(through_door<Call::cuMemFree_v2>(block));
  count(through_door<Call::cuCtxDestroy_v2>(context));
}

TEST(Contexts, EndAndBeginInManyThreadsWithTheirOwnMemory) {
  ASSERT_EQ(through_door<Call::cuInit>(0u), CUDA_SUCCESS);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t i = 0; i < scaled(100); ++i) live(thread << 16 | i, failures);
    });
  }
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(failures, 0);
}

// Its frees are still found done.
TEST(Contexts, RefusedDestroyKeepsContext) {
  ASSERT_EQ(through_door<Call::cuInit>(0u), CUDA_SUCCESS);
  CUcontext context = nullptr;
  for (int times = 0; times < 2; ++times) {
    ASSERT_EQ(through_door<Call::cuDevicePrimaryCtxRetain>(&context, 0), CUDA_SUCCESS);
  }
  ASSERT_EQ(through_door<Call::cuCtxSetCurrent>(context), CUDA_SUCCESS);
  Serving* const serving = Engine::get()->serving();
  if (serving == nullptr) GTEST_SKIP() << "nothing is served";
  const auto is_found_done = [&] {
    const FreeTicket freed = serving->clock.ticket_of_all(context);
    constexpr std::uint64_t a_minute = 60'000'000'000;
    return serving->clock.wait(freed, now_ns() + a_minute);
  };
  EXPECT_TRUE(is_found_done());
  EXPECT_EQ(through_door<Call::cuDevicePrimaryCtxRelease_v2>(0), CUDA_SUCCESS) << "not the last";
  EXPECT_TRUE(is_found_done());
  EXPECT_NE(through_door<Call::cuCtxDestroy_v2>(context), CUDA_SUCCESS) << "a primary one";
  EXPECT_TRUE(is_found_done());
  EXPECT_EQ(through_door<Call::cuDevicePrimaryCtxRelease_v2>(0), CUDA_SUCCESS);
}

// Frees and queries look memory up without a lock. Whatever a thread finds stays valid while it
// looks, even if the pool or context ends meanwhile, and each query returns either the right answer
// or that there is nothing.
TEST(Turnover, PoolsAndContextsMayEndDuringLookupsOfTheirMemory) {
  open_driver();
  ASSERT_EQ(through_door<Call::cuInit>(0u), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(through_door<Call::cuDevicePrimaryCtxRetain>(&context, 0), CUDA_SUCCESS);
  std::atomic<CUdeviceptr> recent{0};
  std::atomic<bool> ends{false};
  std::atomic<int> surprises{0};
  const auto expect = [&](bool expected) { surprises += expected ? 0 : 1; };
  const auto look_up_until_the_end = [&] {
    expect(through_door<Call::cuCtxSetCurrent>(context) == CUDA_SUCCESS);
    while (!ends) {
      const CUdeviceptr address = recent;
      CUdeviceptr base = 0;
      std::size_t size = 0;
      if (through_door<Call::cuMemGetAddressRange_v2>(&base, &size, address) == CUDA_SUCCESS) {
        expect(size == 64 * KiB || size == 2 * MiB);
      }
      CUcontext of = nullptr;
      through_door<Call::cuPointerGetAttribute>(&of, CU_POINTER_ATTRIBUTE_CONTEXT, address);
      CUmemoryPool pool = nullptr;
      through_door<Call::cuPointerGetAttribute>(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                                address);
    }
  };
  std::vector<std::jthread> others;
  for (int i = 0; i < 3; ++i) others.emplace_back(look_up_until_the_end);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  for (std::uint64_t i = 0; i < scaled(300); ++i) {
    CUcontext own = nullptr;
    expect(through_door<Call::cuCtxCreate_v2>(&own, 0u, 0) == CUDA_SUCCESS);
    CUdeviceptr address = 0;
    expect(through_door<Call::cuMemAlloc_v2>(&address, std::size_t{2 * MiB}) == CUDA_SUCCESS);
    recent = address;
    expect(through_door<Call::cuCtxDestroy_v2>(own) == CUDA_SUCCESS);
    expect(through_door<Call::cuCtxSetCurrent>(context) == CUDA_SUCCESS);
    CUmemoryPool pool = nullptr;
    expect(through_door<Call::cuMemPoolCreate>(&pool, &properties) == CUDA_SUCCESS);
    expect(through_door<Call::cuMemAllocFromPoolAsync>(&address, std::size_t{64 * KiB}, pool,
                                                       CUstream{nullptr}) == CUDA_SUCCESS);
    recent = address;
    expect(through_door<Call::cuMemFreeAsync>(address, CUstream{nullptr}) == CUDA_SUCCESS);
    expect(through_door<Call::cuMemPoolDestroy>(pool) == CUDA_SUCCESS);
  }
  ends = true;
  others.clear();
  EXPECT_EQ(surprises, 0);
  EXPECT_EQ(through_door<Call::cuDevicePrimaryCtxReset_v2>(0), CUDA_SUCCESS);
}

}  // namespace
}  // namespace cuvmm::test
