// SPDX-License-Identifier: Apache-2.0
// Memory stays where it is once others reach it by its physical location.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hook_sim/doors.hpp"

namespace cuvmm::test {
namespace {

#define EXPECT_DONE(...) EXPECT_EQ((__VA_ARGS__), CUDA_SUCCESS)
#define ASSERT_DONE(...) ASSERT_EQ((__VA_ARGS__), CUDA_SUCCESS)

constexpr Size bound_bytes = 4 * MiB;

class BoundToAMulticastObject : public ::testing::Test {
 protected:
  void SetUp() override {
    open_driver();
    ASSERT_DONE(through_door<Call::cuInit>(0u));
    ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context_, 0));
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    if (Engine::get()->serving() == nullptr) GTEST_SKIP() << "nothing is served";
    for (CUdeviceptr& one : blocks_) {
      ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&one, std::size_t{bound_bytes}));
    }
    std::sort(blocks_.begin(), blocks_.end());
  }
  void TearDown() override { EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0)); }

  static CUresult bind(CUdeviceptr address, Size size) {
    return through_door<Call::cuMulticastBindAddr>(CUmemGenericAllocationHandle{1}, std::size_t{0},
                                                   address, std::size_t{size}, 0ull);
  }
  std::vector<bool> bound() const {
    std::vector<bool> bound;
    for (const CUdeviceptr one : blocks_) {
      const auto facts = Engine::get()->serving()->memory.find(one);
      bound.push_back(facts && (facts->pins & pin::multicast) != 0);
    }
    return bound;
  }

  CUcontext context_ = nullptr;
  std::vector<CUdeviceptr> blocks_ = std::vector<CUdeviceptr>(3);
};

TEST_F(BoundToAMulticastObject, StaysWhereItIs) {
  EXPECT_DONE(bind(blocks_[1], bound_bytes));
  EXPECT_EQ(bound(), (std::vector<bool>{false, true, false}));
}

TEST_F(BoundToAMulticastObject, IsEveryBlockOfTheRange) {
  ASSERT_EQ(blocks_[1], blocks_[0] + bound_bytes) << "given one behind the other";
  EXPECT_DONE(bind(blocks_[0] + 2 * MiB, bound_bytes));
  EXPECT_EQ(bound(), (std::vector<bool>{true, true, false}));
}

TEST_F(BoundToAMulticastObject, IsNothingIfTheDriverRefuses) {
  EXPECT_NE(bind(blocks_[0], 0), CUDA_SUCCESS);
  EXPECT_EQ(bound(), (std::vector<bool>{false, false, false}));
}

}  // namespace
}  // namespace cuvmm::test
