// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "vmm/access_set.hpp"
#include "vmm/location.hpp"
#include "vmm/stretch.hpp"

namespace cuvmm::test {
namespace {

TEST(AccessSet, RemembersEachDevicesRights) {
  const AccessSet set = AccessSet::of(0).with(3, Access::Read).with(63);
  EXPECT_EQ(set.of_device(0), Access::ReadWrite);
  EXPECT_EQ(set.of_device(3), Access::Read);
  EXPECT_EQ(set.of_device(63), Access::ReadWrite);
  EXPECT_EQ(set.of_device(1), Access::None);
  EXPECT_EQ(set.print(), "0:rw 3:r 63:rw");
}

TEST(AccessSet, TheLastSettingOfADeviceCounts) {
  EXPECT_EQ(AccessSet::of(2).with(2, Access::Read), AccessSet::of(2, Access::Read));
  EXPECT_EQ(AccessSet::of(2, Access::Read).with(2), AccessSet::of(2));
  EXPECT_EQ(AccessSet::of(2).with(2, Access::None), AccessSet::none());
  EXPECT_TRUE(AccessSet::none().is_none());
  EXPECT_EQ(AccessSet::none().print(), "none");
}

TEST(AccessSet, InvalidDevicesHaveNoRights) {
  EXPECT_TRUE(AccessSet::of(-1).is_none());
  EXPECT_TRUE(AccessSet::of(64).is_none());
  EXPECT_EQ(AccessSet::of(0).of_device(64), Access::None);
  EXPECT_EQ(AccessSet::of(0).of_device(-1), Access::None);
}

TEST(AccessSet, AChangeTakesAwayWhatADeviceHadAndShallNotKeep) {
  const AccessSet before = AccessSet::of(0).with(1);
  const AccessSet after = AccessSet::of(1, Access::Read).with(2);
  const AccessChange change{before, after};
  ASSERT_EQ(change.lines().size(), 3u);
  EXPECT_EQ(change.lines()[0].location.id, 0);
  EXPECT_EQ(change.lines()[0].flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(change.lines()[1].flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(change.lines()[2].flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST(AccessSet, NoneToNoneIsNoChange) {
  EXPECT_TRUE(AccessChange(AccessSet::none(), AccessSet::none()).lines().empty());
}

TEST(Location, SaysItTheDriversWay) {
  EXPECT_EQ(Location::device(3).cuda().type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(Location::device(3).cuda().id, 3);
  EXPECT_EQ(Location::host(1).cuda().type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  EXPECT_EQ(Location::host(1).cuda().id, 1);
}

TEST(Location, ADeviceIsNoHostNodeOfItsNumber) {
  EXPECT_FALSE(Location::device(1) == Location::host(1));
}

TEST(Stretch, FitsWithoutOverflow) {
  EXPECT_TRUE((Stretch{0, 10}.fits(10)));
  EXPECT_TRUE((Stretch{10, 0}.fits(10)));
  EXPECT_FALSE((Stretch{1, 10}.fits(10)));
  EXPECT_FALSE((Stretch{unlimited, 2}.fits(10)));
  EXPECT_FALSE((Stretch{2, unlimited}.fits(10)));
}

}  // namespace
}  // namespace cuvmm::test
