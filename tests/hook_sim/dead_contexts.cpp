// SPDX-License-Identifier: Apache-2.0
// Answers to a thread whose current context has ended.
#include <gtest/gtest.h>

#include "hook_sim/on_primary_context.hpp"

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

}  // namespace
}  // namespace cuvmm::test
