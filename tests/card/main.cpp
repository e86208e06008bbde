// SPDX-License-Identifier: Apache-2.0
// A simulated card that processes share: the test program starts them and is none of them.
#include <gtest/gtest.h>

#include "support/child.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const auto status = cuvmm::test::play_child_role(argc, argv)) return *status;
  return RUN_ALL_TESTS();
}
