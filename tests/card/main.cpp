// SPDX-License-Identifier: Apache-2.0
// A simulated card shared between processes: the test program starts them and does not use the card
// itself.
#include <gtest/gtest.h>

#include "support/child.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const auto status = cuvmm::test::play_child_role(argc, argv)) return *status;
  return RUN_ALL_TESTS();
}
