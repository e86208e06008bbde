// SPDX-License-Identifier: Apache-2.0
// Calls through the doors, in the primary context of device 0.
#pragma once

#include <gtest/gtest.h>

#include "hook_sim/doors.hpp"

#define EXPECT_DONE(...) EXPECT_EQ((__VA_ARGS__), CUDA_SUCCESS)
#define ASSERT_DONE(...) ASSERT_EQ((__VA_ARGS__), CUDA_SUCCESS)

namespace cuvmm::test {

class OnPrimaryContext : public ::testing::Test {
 protected:
  void SetUp() override {
    open_driver();
    ASSERT_DONE(through_door<Call::cuInit>(0u));
    ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context_, 0));
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
  }
  void TearDown() override { EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0)); }

  CUcontext context_ = nullptr;
};

}  // namespace cuvmm::test
