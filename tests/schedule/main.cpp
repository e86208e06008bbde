// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "schedule/schedule_world.hpp"

int main(int count, char** words) {
  testing::InitGoogleTest(&count, words);
  cuvmm::test::hooked();
  return RUN_ALL_TESTS();
}
