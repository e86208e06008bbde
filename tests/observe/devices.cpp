// SPDX-License-Identifier: Apache-2.0
#include "observe/devices.hpp"

#include <gtest/gtest.h>

namespace cuvmm::test {
namespace {

TEST(DevicesSeenByNvml, ShowNoMemoryOfNobodyWhileItChangesHands) {
  const auto nvml = observe::Nvml::load(CUVMM_MOVING_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.error().text();
  for (const unsigned device : {0u, 1u}) {
    const auto use = nvml->use(device);
    ASSERT_TRUE(use.has_value()) << device;
    EXPECT_EQ(use->processes.at(7), GiB) << device;
    EXPECT_EQ(use->used, GiB) << device;
  }
}

}  // namespace
}  // namespace cuvmm::test
