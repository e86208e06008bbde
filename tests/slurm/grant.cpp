// SPDX-License-Identifier: Apache-2.0
#include "slurm/grant.hpp"

#include <gtest/gtest.h>

namespace cuvmm::slurm {
namespace {

std::uint64_t units(std::string_view list) {
  const auto grant = granted_of("gpumem", list);
  return grant ? grant->units : 0;
}

TEST(Granted, IsCountedHoweverSlurmWritesIt) {
  for (const char* list :
       {"gpumem:4096", "gpumem:4K", "gres:gpumem:4096", "gres/gpumem=4096", "gpumem(CNT:4096)",
        "gpumem:gpu1:4096", "gpumem:gpu1(CNT:4096)", "gpu:2(IDX:0,1),gpumem(CNT:4096)",
        "gpumem:4096(IDX:0,3),gpu:2", "gpumem:gpu0(CNT:1024),gpumem:gpu1(CNT:3072)"}) {
    EXPECT_EQ(units(list), 4096U) << list;
  }
  EXPECT_EQ(units("gpumem"), 1U);
}

TEST(Granted, IsNothingIfOnlyOtherResourcesAre) {
  for (const char* list : {"", "gpu:2", "gpumemory:4096", "gres:gpu:gpumem:3", ",", "(null)"}) {
    EXPECT_FALSE(granted_of("gpumem", list)) << list;
  }
}

TEST(Granted, NamesTheDeviceOfItsType) {
  EXPECT_EQ(device_of(*granted_of("gpumem", "gpumem:gpu1:4096")), 1);
  EXPECT_EQ(device_of(*granted_of("gpumem", "gpumem:gpu12(CNT:4096)")), 12);
  for (const char* list : {"gpumem:4096", "gpumem:a100:4096", "gpumem:gpu:4096", "gpumem:gpu-1:1",
                           "gpumem:gpu0(CNT:1),gpumem:gpu1(CNT:1)"}) {
    EXPECT_FALSE(device_of(*granted_of("gpumem", list))) << list;
  }
}

TEST(Granted, IsSharedByTheTasksOfANode) {
  EXPECT_EQ(limit_of_task({.units = 3072, .type = {}}, MiB, 3), GiB);
  EXPECT_EQ(limit_of_task({.units = 3072, .type = {}}, MiB, 0), 3 * GiB);
  EXPECT_EQ(limit_of_task({.units = 1, .type = {}}, 1, 2), 0U);
  EXPECT_EQ(limit_of_task({.units = 1, .type = {}}, 0, 1), 0U);
}

TEST(Granted, NeverOverflows) {
  EXPECT_EQ(limit_of_task({.units = ~std::uint64_t{0}, .type = {}}, GiB, 1), unlimited);
  EXPECT_EQ(units("gpumem:99999999999999T"), 1U);  // not a count but a type
  EXPECT_EQ(units("gpumem:18446744073709551615,gpumem:1"), ~std::uint64_t{0});
}

}  // namespace
}  // namespace cuvmm::slurm
