// SPDX-License-Identifier: Apache-2.0
// The engine and the simulated driver read their options once for the process, so these are set
// before either is there. What CTest says goes first.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/child.hpp"

int main(int argc, char** argv) {
  // The smallest granule that windows can have, so that a copy takes microseconds.
  setenv("VMM_SIM_GRANULARITY", "32K", 0);
  setenv("VMM_SIM_MEMORY", "256M", 0);
  setenv("VMM_RESIZE", "auto", 0);
  setenv("VMM_SIM_ORDER", "eager", 0);
  ::testing::InitGoogleTest(&argc, argv);
  if (const auto status = cuvmm::test::play_child_role(argc, argv)) return *status;
  return RUN_ALL_TESTS();
}
