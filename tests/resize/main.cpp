// SPDX-License-Identifier: Apache-2.0
// The engine and the simulated driver read their options once per process, so these are set before
// either exists. Values from CTest take precedence.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/child.hpp"

int main(int argc, char** argv) {
  // The smallest granule that windows support, so that a copy takes microseconds.
  setenv("VMM_SIM_GRANULARITY", "32K", 0);
  setenv("VMM_SIM_MEMORY", "128M", 0);
  setenv("VMM_RESIZE", "auto", 0);
  setenv("VMM_SIM_ORDER", "eager", 0);
  ::testing::InitGoogleTest(&argc, argv);
  if (const auto status = cuvmm::test::play_child_role(argc, argv)) return *status;
  return RUN_ALL_TESTS();
}
