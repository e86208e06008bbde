// SPDX-License-Identifier: Apache-2.0
// Memory stays where it is once others reach it by its physical location.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hook_sim/on_primary_context.hpp"

namespace cuvmm::test {
namespace {

constexpr Size bound_bytes = 4 * MiB;

class BoundToAMulticastObject : public OnPrimaryContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnPrimaryContext::SetUp());
    if (Engine::get()->serving() == nullptr) GTEST_SKIP() << "nothing is served";
    for (CUdeviceptr& one : blocks_) {
      ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&one, std::size_t{bound_bytes}));
    }
    std::sort(blocks_.begin(), blocks_.end());
  }

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

// A program may widen the range to whole pages, while blocks begin at any multiple of 512 bytes.
TEST_F(BoundToAMulticastObject, IsEveryBlockOfAWidenedRange) {
  constexpr Size odd_bytes = 100'000;
  constexpr Size page = 4096;
  std::vector<CUdeviceptr> small(8);
  for (CUdeviceptr& one : small) {
    ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&one, std::size_t{odd_bytes}));
  }
  const auto found =
      std::find_if(small.begin(), small.end(), [](CUdeviceptr one) { return one % page != 0; });
  ASSERT_NE(found, small.end());
  EXPECT_DONE(bind(round_down(*found, page), round_up(odd_bytes, page)));
  const auto facts = Engine::get()->serving()->memory.find(*found);
  EXPECT_TRUE(facts && (facts->pins & pin::multicast) != 0);
  for (const CUdeviceptr one : small) EXPECT_DONE(through_door<Call::cuMemFree_v2>(one));
}

TEST_F(BoundToAMulticastObject, IsNothingIfTheDriverRefuses) {
  EXPECT_NE(bind(blocks_[0], 0), CUDA_SUCCESS);
  EXPECT_EQ(bound(), (std::vector<bool>{false, false, false}));
}

}  // namespace
}  // namespace cuvmm::test
