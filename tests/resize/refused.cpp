// SPDX-License-Identifier: Apache-2.0
// A deferred copy was promised to the program. If the driver refuses it when it has to be run, the
// call that needed it fails, and the copy stays deferred until it can be made.
#include "resize/world.hpp"
#include "support/zero_calls.hpp"

namespace cuvmm::test {
namespace {

constexpr const char* refused_twice =
    "cuMemcpyDtoDAsync:1=CUDA_ERROR_OUT_OF_MEMORY,cuMemcpyDtoDAsync:2=CUDA_ERROR_OUT_OF_MEMORY";

class RefusedDeferredCopy : public ResizeTest {
 protected:
  void SetUp() override {
    ResizeTest::SetUp();
    other_ = given_filled(granule, 50);
    a_ = given_filled(block, ++seed_);
    fresh_ = given_block(block);
    b_ = given_put_off(a_, block, 2 * block);
  }
  static CUresult set_other(CUdeviceptr other) {
    return through_door<Call::cuMemsetD8_v2>(other, static_cast<unsigned char>(9), std::size_t{64});
  }
  void expect_both_filled() {
    expect_filled(b_, block, seed_);
    expect_filled(a_, block, seed_);
  }
  static inline std::uint32_t seed_ = 100;  // unique per test: memory keeps old contents
  CUdeviceptr other_ = 0;
  CUdeviceptr a_ = 0;
  CUdeviceptr b_ = 0;
  CUdeviceptr fresh_ = 0;  // another block that could be resized into
};

TEST_F(RefusedDeferredCopy, OnceIsRetriedSilently) {
  ASSERT_EQ(sim()->set_faults("cuMemcpyDtoDAsync:1=CUDA_ERROR_OUT_OF_MEMORY"), 0);
  EXPECT_DONE(set_other(other_));
  sim()->set_faults(nullptr);
  EXPECT_FALSE(is_pending());
  expect_both_filled();
}

TEST_F(RefusedDeferredCopy, TheCallFailsAndTheNextOneRunsTheCopy) {
  ASSERT_EQ(sim()->set_faults(refused_twice), 0);
  EXPECT_EQ(set_other(other_), CUDA_ERROR_OUT_OF_MEMORY);
  sim()->set_faults(nullptr);
  EXPECT_TRUE(is_pending());
  expect_filled(other_, granule, 50);  // was not set
  EXPECT_FALSE(is_pending());
  expect_both_filled();
}

TEST_F(RefusedDeferredCopy, AProgramThatTriesAnAllocationAgainLosesNothing) {
  ASSERT_EQ(sim()->set_faults(refused_twice), 0);
  CUdeviceptr more = 0;
  EXPECT_EQ(through_door<Call::cuMemAlloc_v2>(&more, std::size_t{block}), CUDA_ERROR_OUT_OF_MEMORY);
  sim()->set_faults(nullptr);
  EXPECT_DONE(through_door<Call::cuMemAlloc_v2>(&more, std::size_t{block}));
  expect_both_filled();
}

// A mere wait still succeeds, and the copy is made for the next reader.
TEST_F(RefusedDeferredCopy, AWaitSucceedsNevertheless) {
  ASSERT_EQ(sim()->set_faults(refused_twice), 0);
  EXPECT_DONE(through_door<Call::cuCtxSynchronize>());
  sim()->set_faults(nullptr);
  EXPECT_TRUE(is_pending());
  expect_both_filled();
}

// Both the elision and the copy in its place are refused.
TEST_F(RefusedDeferredCopy, AFreeFailsAndMayBeRetried) {
  ASSERT_EQ(sim()->set_faults("cuMemcpyDtoDAsync:1=CUDA_ERROR_NOT_SUPPORTED,"
                              "cuMemcpyDtoDAsync:2=CUDA_ERROR_NOT_SUPPORTED,"
                              "cuMemMap:1=CUDA_ERROR_NOT_SUPPORTED,"
                              "cuMemMap:2=CUDA_ERROR_NOT_SUPPORTED"),
            0);
  EXPECT_EQ(free(a_), CUDA_ERROR_NOT_SUPPORTED);
  sim()->set_faults(nullptr);
  EXPECT_TRUE(is_pending());
  EXPECT_DONE(free(a_));
  expect_filled(b_, block, seed_);
}

TEST_F(RefusedDeferredCopy, AStreamOrderedFreeOfTheOldBlockFailsAndMayBeRetried) {
  ASSERT_EQ(sim()->set_faults(refused_twice), 0);
  EXPECT_EQ(through_door<Call::cuMemFreeAsync>(a_, CUstream{}), CUDA_ERROR_OUT_OF_MEMORY);
  sim()->set_faults(nullptr);
  EXPECT_TRUE(is_pending());
  EXPECT_DONE(through_door<Call::cuMemFreeAsync>(a_, CUstream{}));
  expect_filled(b_, block, seed_);
}

TEST_F(RefusedDeferredCopy, AnotherResizeFailsAndMayBeRetried) {
  ASSERT_EQ(sim()->set_faults(refused_twice), 0);
  EXPECT_EQ(copy(fresh_, a_, block), CUDA_ERROR_OUT_OF_MEMORY);
  sim()->set_faults(nullptr);
  EXPECT_TRUE(is_pending());
  EXPECT_DONE(copy(fresh_, a_, block));
  expect_filled(fresh_, block, seed_);
  expect_both_filled();
}

// The context is lost, and its contents with it.
TEST_F(RefusedDeferredCopy, ByALostContextTheCopyIsDropped) {
  ASSERT_EQ(sim()->set_faults("cuMemcpyDtoDAsync:1=CUDA_ERROR_LAUNCH_FAILED"), 0);
  EXPECT_EQ(set_other(other_), CUDA_ERROR_LAUNCH_FAILED);
  sim()->set_faults(nullptr);
  EXPECT_FALSE(is_pending());
}

// Whichever call finds the deferred copy.
TEST_F(ResizeTest, NoRowLosesARefusedCopy) {
  std::uint32_t seed = 1000;
  for (std::size_t row = 0; row < call_count; ++row) {
    const CallInfo& call = all_calls()[row];
    if (call.effect == Effect::Neutral) continue;
    // These end the context.
    if (call.name.starts_with("cuDevicePrimaryCtxRe")) continue;
    SCOPED_TRACE(call.symbol);
    const CUdeviceptr a = given_filled(block, ++seed);
    const CUdeviceptr b = given_block(2 * block);
    ASSERT_DONE(copy(b, a, block));
    ASSERT_TRUE(is_pending()) << why_run();
    ASSERT_EQ(sim()->set_faults(refused_twice), 0);
    zero_calls[row](look_up(call.symbol));
    sim()->set_faults(nullptr);
    EXPECT_TRUE(is_pending());
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    expect_filled(b, block, seed);
    EXPECT_FALSE(is_pending());
    EXPECT_DONE(free(b));
    EXPECT_DONE(free(a));
  }
}

}  // namespace
}  // namespace cuvmm::test
