// SPDX-License-Identifier: Apache-2.0
// Host memory that is refused although no limit forbids it, because the host has not got it.
#include <gtest/gtest.h>
#include <unistd.h>

#include "vmm/available_host_budget.hpp"

namespace cuvmm {
namespace {

std::atomic<Size> available{0};

Size read_available() {
  return available.load();
}

TEST(AvailableHostBudget, RefusesWhatTheHostHasNotAvailable) {
  available = left_to_the_host + 8 * MiB;
  AvailableHostBudget budget{nullptr, &read_available};
  EXPECT_EQ(budget.available(), 8 * MiB);
  const auto too_much = budget.commit(9 * MiB);
  ASSERT_FALSE(too_much.ok());
  EXPECT_EQ(too_much.error().kind, ErrorKind::OutOfMemory);
  EXPECT_TRUE(budget.commit(8 * MiB).ok());
}

TEST(AvailableHostBudget, LeavesSomeToOthers) {
  available = left_to_the_host;
  AvailableHostBudget budget{nullptr, &read_available};
  EXPECT_FALSE(budget.commit(1).ok());
}

// Until the host's figure is read again, and from then on the figure says it.
TEST(AvailableHostBudget, WhatItHasGrantedIsNoLongerAvailable) {
  available = left_to_the_host + 8 * MiB;
  AvailableHostBudget budget{nullptr, &read_available};
  const auto first = budget.commit(6 * MiB);
  ASSERT_TRUE(first.ok());
  available = left_to_the_host + 2 * MiB;
  EXPECT_FALSE(budget.commit(4 * MiB).ok());
}

TEST(AvailableHostBudget, NoticesWhatBecomesAvailable) {
  available = 0;
  AvailableHostBudget budget{nullptr, &read_available};
  EXPECT_FALSE(budget.commit(MiB).ok());
  available = left_to_the_host + MiB;
  int tries = 0;
  for (; tries < 20'000 && !budget.commit(MiB).ok(); ++tries) ::usleep(1000);
  EXPECT_LT(tries, 20'000);
}

TEST(AvailableHostBudget, KeepsToTheBudgetThatItIsWithin) {
  available = left_to_the_host + GiB;
  const auto within = std::make_shared<LocalBudget>(4 * MiB);
  AvailableHostBudget budget{within, &read_available};
  EXPECT_EQ(budget.available(), 4 * MiB);
  EXPECT_FALSE(budget.commit(5 * MiB).ok());
  {
    const auto granted = budget.commit(4 * MiB);
    ASSERT_TRUE(granted.ok());
    EXPECT_EQ(within->committed_bytes(), 4 * MiB);
  }
  EXPECT_EQ(within->committed_bytes(), 0u);
}

}  // namespace
}  // namespace cuvmm
