// SPDX-License-Identifier: Apache-2.0
// pthread_cancel on threads inside driver calls, which are not cancellation points.
#include <gtest/gtest.h>
#include <pthread.h>

#include "hook_sim/on_primary_context.hpp"

namespace cuvmm::test {
namespace {

class Cancelled : public OnPrimaryContext {};

void* allocate_until_cancelled(void* context) {
  EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(static_cast<CUcontext>(context)));
  for (;;) {
    CUdeviceptr memory = 0;
    EXPECT_DONE(through_door<Call::cuMemAlloc_v2>(&memory, std::size_t{4 * MiB}));
    EXPECT_DONE(through_door<Call::cuMemsetD8_v2>(memory, static_cast<unsigned char>(1),
                                                  std::size_t{4 * MiB}));
    EXPECT_DONE(through_door<Call::cuMemFree_v2>(memory));
    pthread_testcancel();
  }
}

TEST_F(Cancelled, AThreadEndsBetweenItsCalls) {
  for (int round = 0; round < 20; ++round) {
    pthread_t thread{};
    ASSERT_EQ(pthread_create(&thread, nullptr, &allocate_until_cancelled, context_), 0);
    usleep(static_cast<useconds_t>(500 * round));
    ASSERT_EQ(pthread_cancel(thread), 0);
    void* end = nullptr;
    ASSERT_EQ(pthread_join(thread, &end), 0);
    EXPECT_EQ(end, PTHREAD_CANCELED);
  }
  // No call has left a lock held.
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_DONE(through_door<Call::cuMemGetInfo_v2>(&free, &total));
}

}  // namespace
}  // namespace cuvmm::test
