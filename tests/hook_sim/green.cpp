// SPDX-License-Identifier: Apache-2.0
// Memory allocated in a green context belongs to its device's primary context, and outlives the
// green context.
#include <gtest/gtest.h>

#include "hook_sim/on_primary_context.hpp"
#include "hook_sim/stand_ins.hpp"

namespace cuvmm::test {
namespace {

class GreenContext : public ::testing::Test {
 protected:
  void SetUp() override {
    open_driver();
    ASSERT_DONE(through_door<Call::cuInit>(0u));
    ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&primary_, 0));
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(primary_));
    if (Engine::get()->serving() == nullptr) GTEST_SKIP() << "nothing is served";
    ASSERT_DONE(through_door<Call::cuCtxFromGreenCtx>(&context_, green_));
  }
  void TearDown() override { EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0)); }

  static Memory& memory() { return Engine::get()->serving()->memory; }
  static CUdeviceptr given() {
    CUdeviceptr address = 0;
    EXPECT_DONE(through_door<Call::cuMemAlloc_v2>(&address, std::size_t{4 * MiB}));
    return address;
  }

  const CUgreenCtx green_ = given_green_context();
  CUcontext primary_ = nullptr;
  CUcontext context_ = nullptr;
};

TEST_F(GreenContext, HasMemoryThatTheDriverServes) {
  ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
  EXPECT_FALSE(memory().find(given()));
  ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(primary_));
  const CUdeviceptr of_the_primary = given();
  EXPECT_TRUE(memory().find(of_the_primary));
  EXPECT_DONE(through_door<Call::cuGreenCtxDestroy>(green_));
  EXPECT_TRUE(memory().find(of_the_primary));
  EXPECT_DONE(through_door<Call::cuMemFree_v2>(of_the_primary));
}

TEST_F(GreenContext, IsForgottenWhenItIsDestroyed) {
  EXPECT_EQ(memory().contexts().context_of(green_), context_);
  EXPECT_DONE(through_door<Call::cuGreenCtxDestroy>(green_));
  EXPECT_EQ(memory().contexts().context_of(green_), nullptr);
  EXPECT_NE(through_door<Call::cuGreenCtxDestroy>(green_), CUDA_SUCCESS);
}

// The program never asks for the context behind its streams.
class StreamsOfAGreenContext : public OnPrimaryContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    if (Engine::get()->serving() == nullptr) GTEST_SKIP() << "nothing is served";
    ASSERT_DONE(through_door<Call::cuGreenCtxStreamCreate>(&stream_, green_,
                                                           unsigned{CU_STREAM_NON_BLOCKING}, 0));
  }

  static Serving& serving() { return *Engine::get()->serving(); }

  const CUgreenCtx green_ = given_green_context();
  CUstream stream_ = nullptr;
};

TEST_F(StreamsOfAGreenContext, EndWithIt) {
  const StreamState* const stream = serving().clock.table().known({.handle = stream_});
  ASSERT_NE(stream, nullptr);
  const CUcontext context = stream->context;
  EXPECT_NE(context, context_);

  EXPECT_DONE(through_door<Call::cuGreenCtxDestroy>(green_));

  EXPECT_EQ(serving().clock.table().known({.handle = stream_}), nullptr);
  EXPECT_TRUE(serving().memory.contexts().is_dead(context));
  EXPECT_FALSE(serving().memory.contexts().is_dead(context_));
}

TEST_F(StreamsOfAGreenContext, MayEndThePrimaryContextToo) {
  CUdeviceptr memory = 0;
  ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&memory, std::size_t{4 * MiB}));
  ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRelease_v2>(0));
  EXPECT_TRUE(serving().memory.find(memory)) << "the green context holds the primary one";

  EXPECT_DONE(through_door<Call::cuGreenCtxDestroy>(green_));

  EXPECT_FALSE(serving().memory.find(memory));
  EXPECT_TRUE(serving().memory.contexts().is_dead(context_));
}

}  // namespace
}  // namespace cuvmm::test
