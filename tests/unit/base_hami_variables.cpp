// SPDX-License-Identifier: Apache-2.0
// HAMi-core's variables as cuvmm options.
#include <gtest/gtest.h>

#include <map>

#include "base/options.hpp"

namespace cuvmm::test {
namespace {

Options from(const std::map<std::string, std::string>& variables) {
  return Options::from_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(HamiVariables, AreLimitsOfAllDevicesAndOfOne) {
  const Options options =
      from({{"CUDA_DEVICE_MEMORY_LIMIT", "2g"}, {"CUDA_DEVICE_MEMORY_LIMIT_3", "512m"}});
  EXPECT_EQ(options.limit.of(GiB * 80), 2 * GiB);
  EXPECT_EQ(options.hami.device_limits[3], 512 * MiB);
  EXPECT_EQ(options.hami.device_limits[0], 0u);
  EXPECT_TRUE(from({{"CUDA_DEVICE_MEMORY_LIMIT", "0"}}).limit.is_none());
  EXPECT_EQ(from({{"CUDA_DEVICE_MEMORY_LIMIT", "1048576"}}).limit.of(GiB), MiB);
}

TEST(HamiVariables, AreOverriddenByOurs) {
  const Options options = from({{"CUDA_DEVICE_MEMORY_LIMIT", "2g"},
                                {"CUDA_DEVICE_MEMORY_LIMIT_0", "1g"},
                                {"CUDA_TASK_PRIORITY", "1"},
                                {"VMM_LIMIT", "3G"},
                                {"VMM_PRIORITY", "7"}});
  EXPECT_EQ(options.limit.of(GiB * 80), 3 * GiB);
  EXPECT_EQ(options.hami.device_limits[0], 0u);
  EXPECT_EQ(int{options.priority}, 7);
}

TEST(HamiVariables, InvertTheirPriority) {
  EXPECT_EQ(int{from({{"CUDA_TASK_PRIORITY", "0"}}).priority}, 0);
  EXPECT_EQ(int{from({{"CUDA_TASK_PRIORITY", "1"}}).priority}, -1);
}

TEST(HamiVariables, CapTheDevicesTime) {
  EXPECT_EQ(int{from({{"CUDA_DEVICE_SM_LIMIT", "30"}}).cap}, 30);
  EXPECT_EQ(int{from({{"CUDA_DEVICE_SM_LIMIT", "0"}}).cap}, 100) << "0 is no cap";
  EXPECT_EQ(int{from({{"CUDA_DEVICE_SM_LIMIT", "30"}, {"VMM_CAP", "50"}}).cap}, 50);
  EXPECT_EQ(int{from({}).cap}, 100);
}

TEST(HamiVariables, ThatCannotBeParsedAreIgnored) {
  const Options options = from({{"CUDA_DEVICE_MEMORY_LIMIT", "much"},
                                {"CUDA_DEVICE_MEMORY_LIMIT_0", "-1"},
                                {"CUDA_DEVICE_SM_LIMIT", "101"},
                                {"CUDA_TASK_PRIORITY", "high"}});
  EXPECT_TRUE(options.limit.is_none());
  EXPECT_EQ(options.hami.device_limits[0], 0u);
  EXPECT_FALSE(options.hami.share.has_value());
  EXPECT_EQ(int{options.priority}, 0);
  EXPECT_TRUE(options.problems().empty());
}

}  // namespace
}  // namespace cuvmm::test
