// SPDX-License-Identifier: Apache-2.0
// The driver calls the program back during some queries.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "hook_sim/on_primary_context.hpp"

namespace cuvmm::test {
namespace {

constexpr Size queried_bytes = 3 * MiB;
CUdeviceptr queried = 0;
std::vector<Size> sizes_seen;

size_t CUDA_CB look_at_the_block(int) {
  Size size = 0;
  EXPECT_DONE(through_door<Call::cuMemGetAddressRange_v2>(static_cast<CUdeviceptr*>(nullptr), &size,
                                                          queried));
  sizes_seen.push_back(size);
  return 0;
}

class CallbackOfAnOccupancyQuery : public OnPrimaryContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    constexpr const char* text = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
)";
    ASSERT_DONE(through_door<Call::cuModuleLoadData>(&module_, static_cast<const void*>(text)));
    ASSERT_DONE(through_door<Call::cuModuleGetFunction>(&function_, module_, "nothing"));
    ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&queried, std::size_t{queried_bytes}));
    sizes_seen.clear();
  }
  void TearDown() override {
    if (queried != 0) {
      EXPECT_DONE(through_door<Call::cuMemFree_v2>(std::exchange(queried, 0)));
    }
    if (module_ != nullptr) {
      EXPECT_DONE(through_door<Call::cuModuleUnload>(module_));
    }
    OnPrimaryContext::TearDown();
  }

  static void expect_the_blocks_size() {
    ASSERT_FALSE(sizes_seen.empty());
    for (const Size size : sizes_seen) EXPECT_EQ(size, queried_bytes);
  }

  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  int grid_ = 0;
  int threads_ = 0;
};

TEST_F(CallbackOfAnOccupancyQuery, IsAnsweredAsOutsideOfIt) {
  EXPECT_DONE(through_door<Call::cuOccupancyMaxPotentialBlockSize>(
      &grid_, &threads_, function_, &look_at_the_block, std::size_t{0}, 0));
  expect_the_blocks_size();
  EXPECT_GT(threads_, 0);
}

TEST_F(CallbackOfAnOccupancyQuery, IsAnsweredAsOutsideOfItWithFlagsToo) {
  EXPECT_DONE(through_door<Call::cuOccupancyMaxPotentialBlockSizeWithFlags>(
      &grid_, &threads_, function_, &look_at_the_block, std::size_t{0}, 0, 0U));
  expect_the_blocks_size();
}

TEST_F(CallbackOfAnOccupancyQuery, MayBeAbsent) {
  EXPECT_DONE(through_door<Call::cuOccupancyMaxPotentialBlockSize>(
      &grid_, &threads_, function_, CUoccupancyB2DSize{nullptr}, std::size_t{0}, 0));
  EXPECT_GT(threads_, 0);
}

}  // namespace
}  // namespace cuvmm::test
