// SPDX-License-Identifier: Apache-2.0
// Where a pool's granules come from.
#include "alloc/device_memory.hpp"
#include "pool_world.hpp"

namespace cuvmm::test {
namespace {

using PoolPlacesTest = VmmTest;

ErrorKind refusal(PoolWorld& world, const PlaceSettings& settings) {
  const auto made = world.try_places(settings);
  return made.ok() ? ErrorKind::TimedOut : made.error().kind;
}

TEST_F(PoolPlacesTest, AGranuleIsAPowerOfTwoAndTheDriversMultiple) {
  PoolWorld world{driver()};
  const Size granule = world.granule();
  EXPECT_EQ(refusal(world, {.granule = 3 * granule}), ErrorKind::InvalidGranule);
  EXPECT_EQ(refusal(world, {.granule = granule / 2}), ErrorKind::InvalidGranule);
  EXPECT_EQ(refusal(world, {.granule = 32 * KiB}), ErrorKind::InvalidGranule);
  EXPECT_EQ(world.make_places({.granule = 8 * granule})->granule(), 8 * granule);
}

TEST_F(PoolPlacesTest, DevicesMustExistAndBeUnique) {
  PoolWorld world{driver()};
  EXPECT_EQ(refusal(world, {.devices = {}}), ErrorKind::InvalidArgument);
  EXPECT_EQ(refusal(world, {.devices = {0, 0}}), ErrorKind::InvalidArgument);
}

TEST_F(PoolPlacesTest, FreedMemoryIsCachedUpToTheDevicesBound) {
  const Size granule = PoolWorld{driver()}.granule();
  const auto device =
      GIVEN_VALUE(DeviceMemory::create(driver(), 0, {.cache = SizeLimit::of_bytes(2 * granule)}));
  const auto store_of = [&](Location) -> Result<ChunkStore*> { return &device->store(); };
  const auto places = GIVEN_VALUE(PoolPlaces::create(driver(), store_of, {}));
  const auto pool = GIVEN_VALUE(ElasticPool::create(places, {.capacity = 8 * granule}));
  ASSERT_EQ(GIVEN_VALUE(pool->allocate(8 * granule)), 0U);
  ASSERT_TRUE(pool->deallocate({0, 8 * granule}).ok());
  EXPECT_EQ(places->cached_bytes(), 2 * granule);
}

TEST_F(PoolPlacesTest, PackFillsTheFirstDeviceFirst) {
  NEEDS_DEVICES(2);
  PoolWorld world{driver(), {.devices = {1, 0}, .placement = PoolPlacement::Pack}};
  world.budgets[1]->set_limit(2 * world.granule());
  const auto chunks = GIVEN_VALUE(world.places->take({0, 1, 2, 3}));
  EXPECT_EQ(chunks[0]->location(), Location::device(1));
  EXPECT_EQ(chunks[1]->location(), Location::device(1));
  EXPECT_EQ(chunks[2]->location(), Location::device(0));
  EXPECT_EQ(chunks[3]->location(), Location::device(0));
}

TEST_F(PoolPlacesTest, StripeAlternatesAndSkipsFullDevices) {
  NEEDS_DEVICES(2);
  PoolWorld world{driver(), {.devices = {0, 1}, .placement = PoolPlacement::Stripe}};
  world.budgets[1]->set_limit(world.granule());
  const auto chunks = GIVEN_VALUE(world.places->take({4, 5, 6, 7}));
  EXPECT_EQ(chunks[0]->location(), Location::device(0));
  EXPECT_EQ(chunks[1]->location(), Location::device(1));
  EXPECT_EQ(chunks[2]->location(), Location::device(0));
  EXPECT_EQ(chunks[3]->location(), Location::device(0));
}

TEST_F(PoolPlacesTest, LocalIsTheDeviceOfTheCaller) {
  NEEDS_DEVICES(2);
  PoolWorld world{driver(), {.devices = {0, 1}, .placement = PoolPlacement::LocalThenPeer}};
  world.budgets[1]->set_limit(world.granule());
  const PrimaryContext other{1};
  const auto chunks = GIVEN_VALUE(world.places->take({0, 1}));
  EXPECT_EQ(chunks[0]->location(), Location::device(1));
  EXPECT_EQ(chunks[1]->location(), Location::device(0));
}

TEST_F(PoolPlacesTest, TheHostComesLast) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  PoolWorld world{driver(), {.host = HostUse::Last}};
  // Both stores are numbered 0; the device's was made first.
  ChunkStore& device = *GIVEN_VALUE(world.store_of(Location::device(0)));
  static_cast<LocalBudget*>(device.budget(Location::device(0)))->set_limit(world.granule());
  const auto chunks = GIVEN_VALUE(world.places->take({0, 1}));
  EXPECT_TRUE(chunks[0]->location().is_device());
  EXPECT_TRUE(chunks[1]->location().is_host());
}

TEST_F(PoolPlacesTest, AllGranulesAreGrantedOrNoneAndTheErrorCountsThem) {
  PoolWorld world{driver()};
  world.budgets[0]->set_limit(2 * world.granule());
  const auto taken = world.places->take({0, 1, 2});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().kind, ErrorKind::OutOfMemory);
  EXPECT_EQ(taken.error().asked, 3 * world.granule());
  EXPECT_EQ(taken.error().available, 2 * world.granule());
  EXPECT_EQ(GIVEN_VALUE(world.store_of(Location::device(0)))
                ->counters(Location::device(0))
                .physical_in_use,
            0u);
}

}  // namespace
}  // namespace cuvmm::test
