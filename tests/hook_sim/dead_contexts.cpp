// SPDX-License-Identifier: Apache-2.0
// Answers to a thread whose current context has ended.
#include <gtest/gtest.h>

#include "hook_sim/on_primary_context.hpp"
#include "hook_sim/stand_ins.hpp"

namespace cuvmm::test {
namespace {

std::uint64_t used_in(CUmemoryPool pool) {
  cuuint64_t used = 0;
  EXPECT_DONE(through_door<Call::cuMemPoolGetAttribute>(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                                                        static_cast<void*>(&used)));
  return used;
}

TEST(InADeadContext, PoolMemoryIsNotFreedAndStaysUsed) {
  open_driver();
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  ASSERT_DONE(through_door<Call::cuInit>(0u));
  ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context, 0));
  ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context));
  ASSERT_DONE(through_door<Call::cuDeviceGetDefaultMemPool>(&pool, 0));
  const std::uint64_t before = used_in(pool);
  CUdeviceptr memory = 0;
  ASSERT_DONE(through_door<Call::cuMemAllocAsync>(&memory, std::size_t{2 * MiB},
                                                  CUstream{CU_STREAM_LEGACY}));
  // The context stays current on this thread.
  ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
  EXPECT_EQ(through_door<Call::cuMemFree_v2>(memory), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(used_in(pool), before + 2 * MiB);

  ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context, 0));
  ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context));
  EXPECT_DONE(through_door<Call::cuMemFree_v2>(memory));
  EXPECT_DONE(through_door<Call::cuCtxSynchronize>());
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
}

using ALostContext = OnPrimaryContext;

TEST_F(ALostContext, IsNoReasonToServeNothingOnceItHasEnded) {
  Serving* const serving = Engine::get()->serving();
  if (serving == nullptr) GTEST_SKIP() << "nothing is served";
  const auto expect_served = [&](bool is_served) {
    CUdeviceptr memory = 0;
    ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&memory, std::size_t{4 * MiB}));
    EXPECT_EQ(serving->memory.find(memory).has_value(), is_served);
    EXPECT_DONE(through_door<Call::cuMemFree_v2>(memory));
  };
  serving->memory.work().context_is_lost(context_);
  expect_served(false);

  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
  ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
  expect_served(true);
}

// The last holder's release may be followed by another thread's retain before the release returns:
// the primary context is active again, and a new one.
TEST(APrimaryContext, HasEndedEvenIfThereIsANewOneAtOnce) {
  open_driver();
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  ASSERT_DONE(through_door<Call::cuInit>(0u));
  Serving* const serving = Engine::get()->serving();
  if (serving == nullptr) GTEST_SKIP() << "nothing is served";
  ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context, 0));
  ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context));
  ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&memory, std::size_t{4 * MiB}));
  ASSERT_TRUE(serving->memory.find(memory));
  const Driver& driver = Engine::get()->driver();
  // Asking which context is primary is itself a retain and a release.
  after_next_release([&] {
    after_next_release([&] {
      CUcontext next = nullptr;
      EXPECT_DONE(driver.cuDevicePrimaryCtxRetain(&next, 0));
    });
  });

  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxRelease_v2>(0));

  EXPECT_FALSE(serving->memory.find(memory));
  ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context, 0));
  ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context));
  EXPECT_DONE(through_door<Call::cuMemAlloc_v2>(&memory, std::size_t{4 * MiB}));
  EXPECT_DONE(through_door<Call::cuMemFree_v2>(memory));
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
}

// Each cuCtxAttach adds a use, and a context ends with its last use.
TEST(AnAttachedContext, KeepsItsMemoryUntilItsLastUseEnds) {
  open_driver();
  CUcontext context = nullptr;
  CUcontext attached = nullptr;
  CUdeviceptr memory = 0;
  ASSERT_DONE(through_door<Call::cuInit>(0u));
  Serving* const serving = Engine::get()->serving();
  if (serving == nullptr) GTEST_SKIP() << "nothing is served";
  ASSERT_DONE(through_door<Call::cuCtxCreate_v2>(&context, 0u, 0));
  ASSERT_DONE(through_door<Call::cuCtxAttach>(&attached, 0u));
  ASSERT_EQ(attached, context);
  ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&memory, std::size_t{4 * MiB}));
  ASSERT_TRUE(serving->memory.find(memory));

  EXPECT_DONE(through_door<Call::cuCtxDetach>(context));

  EXPECT_TRUE(serving->memory.find(memory));
  EXPECT_FALSE(serving->memory.contexts().is_dead(context));
  CUdeviceptr next = 0;
  EXPECT_DONE(through_door<Call::cuMemAlloc_v2>(&next, std::size_t{4 * MiB}));

  EXPECT_DONE(through_door<Call::cuCtxDetach>(context));

  EXPECT_FALSE(serving->memory.find(memory));
  EXPECT_TRUE(serving->memory.contexts().is_dead(context));
}

}  // namespace
}  // namespace cuvmm::test
