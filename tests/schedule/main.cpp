// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "schedule/schedule_world.hpp"
#include "support/child.hpp"

int main(int count, char** words) {
  testing::InitGoogleTest(&count, words);
  cuvmm::test::hooked();
  if (const auto status = cuvmm::test::play_child_role(count, words)) return *status;
  return RUN_ALL_TESTS();
}
