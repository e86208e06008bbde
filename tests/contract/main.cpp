// SPDX-License-Identifier: Apache-2.0
// The contract: one set of scenarios, run unchanged against the simulated driver and a card's.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/child.hpp"
#include "support/driver_under_test.hpp"

namespace cuvmm::test {
namespace {

// Prints once which driver is tested.
class DriverName : public ::testing::Environment {
 public:
  void SetUp() override {
    char name[256] = "no device";
    GIVEN(driver().cuInit(0));
    GIVEN(driver().cuDeviceGetName(name, sizeof name, device()));
    std::printf("driver %s (%d), %d x %s\n", driver_path().c_str(), driver().version,
                device_count(), name);
    // Creating a card's primary context takes a good part of a second: keep it alive between tests.
    CUcontext context = nullptr;
    GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  }
  void TearDown() override { EXPECT_CUDA(driver().cuDevicePrimaryCtxRelease(device())); }
};

}  // namespace
}  // namespace cuvmm::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const auto status = cuvmm::test::play_child_role(argc, argv)) return *status;
  ::testing::AddGlobalTestEnvironment(new cuvmm::test::DriverName);
  return RUN_ALL_TESTS();
}
