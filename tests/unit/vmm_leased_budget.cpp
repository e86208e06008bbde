// SPDX-License-Identifier: Apache-2.0
#include "vmm/leased_budget.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <vector>

namespace cuvmm::test {
namespace {

class NoMore final : public Lessor {
 public:
  void begin(LeasedBudget& budget, const Uuid& /*device*/, Size /*memory*/) override {
    budget.lease_from(*this);
  }
  Extended extend(LeasedBudget& /*budget*/, Size /*size*/) override { return Extended::No; }
  bool wait_for(LeasedBudget& /*budget*/, Size /*size*/, std::uint64_t /*until*/,
                std::uint64_t /*longest*/, const StillWanted& /*is_wanted*/) override {
    return false;
  }
};

class LeasedBudgetWithoutMore : public ::testing::Test {
 protected:
  LeasedBudgetWithoutMore() { lessor_.begin(budget_, {}, GiB); }

  NoMore lessor_;
  LeasedBudget budget_;
};

TEST_F(LeasedBudgetWithoutMore, GrantsWhatIsLeasedAndLeavesTheRestToSpare) {
  EXPECT_FALSE(budget_.commit(1).ok());
  budget_.add_lease(10);
  const auto held = budget_.commit(7);
  ASSERT_TRUE(held.ok());
  EXPECT_FALSE(budget_.commit(4).ok());
  EXPECT_EQ(budget_.surplus(), 3u);
  EXPECT_EQ(budget_.take_surplus(2), 2u);
  EXPECT_EQ(budget_.take_surplus(unlimited), 1u);
  EXPECT_EQ(budget_.lease_what_is_held(), 7u);
}

TEST_F(LeasedBudgetWithoutMore, NeedsNoLeaseForNativeMemory) {
  budget_.add_lease(10);
  budget_.note_native(100);
  EXPECT_EQ(budget_.surplus(), 10u);
  EXPECT_FALSE(budget_.commit(11).ok());
  EXPECT_TRUE(budget_.commit(10).ok());
  budget_.forget_native(100);
  EXPECT_EQ(budget_.lease_what_is_held(), 0u);
}

// What one thread takes back from the lease, no other may commit.
TEST_F(LeasedBudgetWithoutMore, IsExactWhileItsLeaseIsTakenBack) {
  constexpr int rounds = 30'000;
  constexpr Size lease = 4;
  constexpr std::size_t committers = 2;
  std::barrier turn{committers + 1};
  std::vector<Commitment> held(committers);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < committers; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < rounds; ++round) {
        turn.arrive_and_wait();
        if (auto right = budget_.commit(3); right.ok()) held[i] = std::move(*right);
        turn.arrive_and_wait();
      }
    });
  }
  int wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    budget_.add_lease(lease);
    turn.arrive_and_wait();
    const Size taken = budget_.take_surplus(unlimited);
    turn.arrive_and_wait();
    if (budget_.committed_bytes() + budget_.surplus() + taken != lease) ++wrong;
    for (Commitment& one : held) one = {};
    if (budget_.lease_what_is_held() != 0) ++wrong;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace cuvmm::test
