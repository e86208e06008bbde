// SPDX-License-Identifier: Apache-2.0
#include "base/sim_flag.hpp"

#include <gtest/gtest.h>

namespace cuvmm::test {
namespace {

using Texts = std::vector<std::string>;

Texts variables_of(std::string_view flag) {
  std::vector<SimSetting> settings;
  EXPECT_EQ(split_sim_flag(flag, settings), std::nullopt);
  Texts variables;
  for (const SimSetting& one : settings) variables.push_back(one.variable + "=" + one.value);
  return variables;
}

bool is_refused_with(std::string_view words, std::string_view flag) {
  std::vector<SimSetting> settings;
  return split_sim_flag(flag, settings).value_or("").find(words) != std::string::npos;
}

TEST(SimFlag, SetsTheVariablesOfItsKeysInAnyCase) {
  EXPECT_EQ(variables_of("devices=2,Memory=8G"), (Texts{"VMM_SIM_DEVICES=2", "VMM_SIM_MEMORY=8G"}));
}

TEST(SimFlag, AddsUpAndMayBeWithoutSettings) {
  EXPECT_EQ(variables_of(""), Texts{});
  EXPECT_EQ(variables_of("true"), Texts{});
  EXPECT_EQ(variables_of("memory=8G\ntrue\ndevices=2"),
            (Texts{"VMM_SIM_MEMORY=8G", "VMM_SIM_DEVICES=2"}));
}

TEST(SimFlag, KeepsTheCallsOfOneSettingTogether) {
  EXPECT_EQ(variables_of("fault=cuMemAlloc:1=2,cuMemMap:2=3,memory=8G\ndelay=cuMemMap=1ms"),
            (Texts{"VMM_SIM_FAULT=cuMemAlloc:1=2,cuMemMap:2=3", "VMM_SIM_MEMORY=8G",
                   "VMM_SIM_DELAY=cuMemMap=1ms"}));
}

TEST(SimFlag, SaysWhichSettingsThereAre) {
  EXPECT_TRUE(is_refused_with("there is no setting 'speed'", "memory=8G,speed=2"));
  EXPECT_TRUE(is_refused_with("memory", "speed=2"));
  EXPECT_TRUE(is_refused_with("NAME=VALUE", "memory"));
}

TEST(SimFlag, TellsASettingFromACommand) {
  EXPECT_TRUE(is_sim_setting("memory=8G"));
  EXPECT_FALSE(is_sim_setting("memory"));
  EXPECT_FALSE(is_sim_setting("LANG=C"));
}

}  // namespace
}  // namespace cuvmm::test
