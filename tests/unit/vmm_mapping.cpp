// SPDX-License-Identifier: Apache-2.0
#include "support/faulty_driver.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {
namespace {

class MappingTest : public VmmTest {};

TEST_F(MappingTest, AReservationHasTheAddressesItSays) {
  const Size size = 4 * granularity();
  const Reservation reservation =
      GIVEN_VALUE(Reservation::create(driver(), size, granularity(), 16 * granularity()));
  EXPECT_EQ(reservation.size(), size);
  EXPECT_EQ(reservation.address() % (16 * granularity()), 0u);
  EXPECT_TRUE(reservation.contains(reservation.address(), size));
  EXPECT_FALSE(reservation.contains(reservation.address() + 1, size));
  EXPECT_FALSE(reservation.contains(reservation.address() - 1, 1));
  EXPECT_FALSE(reservation.contains(reservation.address() + 1, unlimited));
}

TEST_F(MappingTest, BadReservationsAreTypedErrors) {
  const Size step = granularity();
  const auto reserve = [&](Size size, Size granule, Size alignment = 0) {
    return outcome(Reservation::create(driver(), size, granule, alignment));
  };
  EXPECT_EQ(reserve(0, step), "invalid argument");
  EXPECT_EQ(reserve(step + 1, step), "invalid argument");
  EXPECT_EQ(reserve(unlimited, step), "invalid argument");
  EXPECT_EQ(reserve(step, 0), "invalid argument");
  EXPECT_EQ(reserve(step, 3), "invalid argument");
  EXPECT_EQ(reserve(step, step, 3 * step), "invalid argument");
  EXPECT_EQ(reserve(step, step, step / 2), "invalid argument");
  EXPECT_EQ(reserve(1024 * TiB, step), "out of addresses");
}

TEST_F(MappingTest, AMappingOfAStretchStaysInsideTheReservation) {
  VmmWorld world{driver()};
  EXPECT_OK(Mapping::of(world.addresses, world.stretch(2, 2)));
  EXPECT_EQ(outcome(Mapping::of(world.addresses, world.stretch(7, 2))), "invalid argument");
  EXPECT_EQ(outcome(Mapping::of(world.addresses, {1, world.granule})), "invalid argument");
  EXPECT_EQ(outcome(Mapping::of(world.addresses, {0, 0})), "invalid argument");
  EXPECT_EQ(outcome(Mapping::of(world.addresses, {unlimited, 2})), "invalid argument");
}

TEST_F(MappingTest, FindsTheChunkAtAnyOffset) {
  VmmWorld world{driver()};
  world.given_mapped(1, {1, 2}, 1);
  const Size granule = world.granule;
  EXPECT_EQ(world.mapping.find(0), nullptr);
  EXPECT_EQ(world.mapping.find(granule)->offset, granule);
  EXPECT_EQ(world.mapping.find(4 * granule - 1)->offset, 2 * granule);
  EXPECT_EQ(world.mapping.find(4 * granule), nullptr);
  EXPECT_EQ(world.mapping.find(unlimited), nullptr);
  EXPECT_TRUE(world.mapping.covers(world.stretch(1, 3)));
  EXPECT_FALSE(world.mapping.covers(world.stretch(0, 2)));
  EXPECT_FALSE(world.mapping.covers(world.stretch(3, 2)));
  EXPECT_EQ(world.mapping.chunks_in(world.stretch(0, 8)).size(), 2u);
  EXPECT_EQ(world.mapping.chunks_in(world.stretch(3, 1)).size(), 1u);
  EXPECT_EQ(world.mapping.chunks_in(world.stretch(4, 4)).size(), 0u);
  EXPECT_EQ(world.mapping.mapped_bytes(), 3 * granule);
  expect_true(world.mapping);
}

TEST_F(MappingTest, UnmapsTheRestWhenItEnds) {
  VmmWorld world{driver()};
  {
    Mapping part = GIVEN_VALUE(Mapping::of(world.addresses, world.stretch(4, 2)));
    MapPlan plan;
    plan.map(part, 0, world.chunk(), read_write());
    ASSERT_OK(plan.commit());
    Mapping moved = std::move(part);
    EXPECT_EQ(moved.chunk_count(), 1u);
    EXPECT_EQ(world.store.counters(world.here).physical_in_use, world.granule);
  }
  EXPECT_EQ(world.store.counters(world.here).physical_in_use, 0u);
  expect_true(world.mapping);
}

TEST_F(MappingTest, AccessIsSetOncePerContiguousStretchAndRights) {
  FaultyDriver watched{driver()};
  VmmWorld world{watched, 16};
  MapPlan plan;
  // Declared in no particular order: granules 0-2 and 4-5 for reading and writing, 6 for reading.
  plan.map(world.mapping, 4 * world.granule, world.chunk(2), read_write());
  plan.map(world.mapping, 0, world.chunk(), read_write());
  plan.map(world.mapping, 6 * world.granule, world.chunk(), AccessSet::of(0, Access::Read));
  plan.map(world.mapping, 1 * world.granule, world.chunk(2), read_write());
  plan.map(world.mapping, 9 * world.granule, world.chunk(), AccessSet::none());
  watched.forget_calls();
  ASSERT_OK(plan.commit());
  EXPECT_EQ(watched.count_of("cuMemMap"), 5u);
  EXPECT_EQ(watched.count_of("cuMemSetAccess"), 3u);
  EXPECT_EQ(watched.names().size(), 8u) << "nothing else is asked of the driver";
  EXPECT_TRUE(plan.is_empty());
  expect_true(world.mapping);
}

TEST_F(MappingTest, AccessChangesInOneCallHoweverItWasBefore) {
  FaultyDriver watched{driver()};
  VmmWorld world{watched};
  world.given_mapped(0, {1, 1, 1}, 1);
  MapPlan plan;
  plan.allow(world.mapping, world.stretch(1, 1), AccessSet::of(0, Access::Read));
  ASSERT_OK(plan.commit());
  expect_true(world.mapping);
  watched.forget_calls();
  plan.allow(world.mapping, world.stretch(0, 3), AccessSet::none());
  ASSERT_OK(plan.commit());
  EXPECT_EQ(watched.count_of("cuMemSetAccess"), 1u);
  expect_true(world.mapping);
  watched.forget_calls();
  plan.allow(world.mapping, world.stretch(0, 3), AccessSet::none());
  ASSERT_OK(plan.commit());
  EXPECT_EQ(watched.names().size(), 0u) << "nothing was to be changed";
}

TEST_F(MappingTest, TheSameChunkLiesAtTwoAddresses) {
  VmmWorld world{driver()};
  const ChunkRef chunk = world.chunk();
  MapPlan plan;
  plan.map(world.mapping, 0, chunk, read_write());
  plan.map(world.mapping, 3 * world.granule, chunk, read_write());
  ASSERT_OK(plan.commit());
  fill_pattern(world.address(0), world.granule, 3);
  expect_pattern(world.address(3), world.granule, 3);
  plan.unmap(world.mapping, 0);
  ASSERT_OK(plan.commit());
  expect_pattern(world.address(3), world.granule, 3);
  expect_true(world.mapping);
}

TEST_F(MappingTest, AChunkMovesInOnePlanAndKeepsItsContents) {
  VmmWorld world{driver()};
  world.given_mapped(0, {1}, 1);
  fill_pattern(world.address(0), world.granule, 9);
  MapPlan plan;
  plan.map(world.mapping, 5 * world.granule, world.mapping.find(0)->chunk, read_write());
  plan.unmap(world.mapping, 0);
  ASSERT_OK(plan.commit());
  EXPECT_EQ(world.mapping.find(0), nullptr);
  expect_pattern(world.address(5), world.granule, 9);
  expect_true(world.mapping);
}

TEST_F(MappingTest, OnePlanChangesSeveralMappings) {
  VmmWorld world{driver()};
  Mapping low = GIVEN_VALUE(Mapping::of(world.addresses, world.stretch(0, 4)));
  Mapping high = GIVEN_VALUE(Mapping::of(world.addresses, world.stretch(4, 4)));
  MapPlan plan;
  plan.map(low, 0, world.chunk(), read_write());
  plan.map(high, 0, world.chunk(2), read_write());
  ASSERT_OK(plan.commit());
  plan.map(high, 2 * world.granule, low.find(0)->chunk, read_write());
  plan.unmap(low, 0);
  ASSERT_OK(plan.commit());
  EXPECT_EQ(low.chunk_count(), 0u);
  EXPECT_EQ(high.mapped_bytes(), 3 * world.granule);
  expect_true(low);
  expect_true(high);
}

TEST_F(MappingTest, AFailedPlanMayBeCommittedAgain) {
  FaultyDriver faulty{driver()};
  VmmWorld world{faulty};
  MapPlan plan;
  plan.map(world.mapping, 0, world.chunk(), read_write());
  faulty.fail_call(Call::cuMemSetAccess, 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(outcome(plan.commit()), "out of memory");
  EXPECT_EQ(world.mapping.chunk_count(), 0u);
  EXPECT_FALSE(plan.is_empty());
  EXPECT_OK(plan.commit());
  expect_true(world.mapping);
}

TEST_F(MappingTest, WhatCouldNotBePutBackIsReportedAndCanBeMappedAgain) {
  FaultyDriver faulty{driver()};
  VmmWorld world{faulty};
  world.given_mapped(0, {1, 1}, 4);
  const ChunkRef was = world.mapping.find(0)->chunk;
  MapPlan plan;
  plan.unmap(world.mapping, 0);
  plan.map(world.mapping, 0, world.chunk(), read_write());
  faulty.fail_from(2, CUDA_ERROR_UNKNOWN);  // the unmap works, later calls fail
  const auto result = plan.commit();
  faulty.stop_failing();
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().text().find("could not all be undone"), std::string::npos)
      << result.error().text();
  EXPECT_EQ(world.mapping.find(0), nullptr);
  expect_true(world.mapping);

  MapPlan repair;
  repair.map(world.mapping, 0, was, read_write());
  ASSERT_OK(repair.commit());
  EXPECT_EQ(world.mapping.find(0)->chunk, was);
  expect_true(world.mapping);
}

struct BadPlan {
  const char* what;
  const char* outcome;
  void (*say)(MapPlan&, VmmWorld&);
};

// Granules 0, 1 and 2+3 are mapped; 4 to 7 are not.
const BadPlan bad_plans[] = {
    {"MapWithoutAChunk", "invalid argument",
     [](MapPlan& plan, VmmWorld& world) { plan.map(world.mapping, 0, {}, read_write()); }},
    {"MapUnaligned", "invalid argument",
     [](MapPlan& plan, VmmWorld& world) {
       plan.map(world.mapping, 4 * world.granule + 512, world.chunk(), read_write());
     }},
    {"MapBeyondTheEnd", "invalid argument",
     [](MapPlan& plan, VmmWorld& world) {
       plan.map(world.mapping, 7 * world.granule, world.chunk(2), read_write());
     }},
    {"MapAtAnOffsetThatOverflows", "invalid argument",
     [](MapPlan& plan, VmmWorld& world) {
       plan.map(world.mapping, round_down(unlimited, world.granule), world.chunk(2), read_write());
     }},
    {"MapOverAChunk", "already mapped",
     [](MapPlan& plan, VmmWorld& world) {
       plan.map(world.mapping, 3 * world.granule, world.chunk(), read_write());
     }},
    {"MapFromBelowOverAChunk", "already mapped",
     [](MapPlan& plan, VmmWorld& world) {
       plan.unmap(world.mapping, 1 * world.granule);
       plan.map(world.mapping, 1 * world.granule, world.chunk(2), read_write());
     }},
    {"MapTwiceAtOnePlace", "already mapped",
     [](MapPlan& plan, VmmWorld& world) {
       plan.map(world.mapping, 4 * world.granule, world.chunk(2), read_write());
       plan.map(world.mapping, 5 * world.granule, world.chunk(), read_write());
     }},
    {"UnmapNothing", "not mapped",
     [](MapPlan& plan, VmmWorld& world) { plan.unmap(world.mapping, 5 * world.granule); }},
    {"UnmapAnEmptyStretch", "not mapped",
     [](MapPlan& plan, VmmWorld& world) { plan.unmap(world.mapping, world.stretch(4, 4)); }},
    {"UnmapNoBytes", "not mapped",
     [](MapPlan& plan, VmmWorld& world) { plan.unmap(world.mapping, world.stretch(0, 0)); }},
    {"UnmapTwice", "not mapped",
     [](MapPlan& plan, VmmWorld& world) {
       plan.unmap(world.mapping, 0);
       plan.unmap(world.mapping, 0);
     }},
    {"UnmapTwiceByAStretch", "not mapped",
     [](MapPlan& plan, VmmWorld& world) {
       plan.unmap(world.mapping, world.stretch(0, 4));
       plan.unmap(world.mapping, 1 * world.granule);
     }},
    {"UnmapTheEndOfAChunk", "invalid argument",
     [](MapPlan& plan, VmmWorld& world) { plan.unmap(world.mapping, 3 * world.granule); }},
    {"UnmapTheBeginOfAChunk", "invalid argument",
     [](MapPlan& plan, VmmWorld& world) { plan.unmap(world.mapping, world.stretch(1, 2)); }},
    {"UnmapBeyondTheEnd", "invalid argument",
     [](MapPlan& plan, VmmWorld& world) { plan.unmap(world.mapping, world.stretch(4, 5)); }},
    {"UnmapAStretchThatOverflows", "invalid argument",
     [](MapPlan& plan, VmmWorld& world) {
       plan.unmap(world.mapping, {world.granule, unlimited});
     }},
    {"AllowNothing", "not mapped",
     [](MapPlan& plan, VmmWorld& world) {
       plan.allow(world.mapping, world.stretch(4, 1), read_write());
     }},
    {"AllowBeyondWhatIsMapped", "not mapped",
     [](MapPlan& plan, VmmWorld& world) {
       plan.allow(world.mapping, world.stretch(2, 3), read_write());
     }},
    {"AllowPartOfAChunk", "invalid argument",
     [](MapPlan& plan, VmmWorld& world) {
       plan.allow(world.mapping, world.stretch(2, 1), read_write());
     }},
    {"AllowNoBytes", "invalid argument",
     [](MapPlan& plan, VmmWorld& world) {
       plan.allow(world.mapping, world.stretch(0, 0), read_write());
     }},
    {"AllowTwice", "invalid argument",
     [](MapPlan& plan, VmmWorld& world) {
       plan.allow(world.mapping, world.stretch(0, 2), read_write());
       plan.allow(world.mapping, world.stretch(1, 1), AccessSet::none());
     }},
    {"AllowWhatIsUnmapped", "not mapped",
     [](MapPlan& plan, VmmWorld& world) {
       plan.unmap(world.mapping, 0);
       plan.allow(world.mapping, world.stretch(0, 2), read_write());
     }},
};

class InvalidPlan : public VmmTest, public ::testing::WithParamInterface<BadPlan> {};

TEST_P(InvalidPlan, IsATypedErrorBeforeAnyDriverCall) {
  FaultyDriver watched{driver()};
  VmmWorld world{watched};
  world.given_mapped(0, {1, 1, 2}, 1);
  const std::string before = describe(world.mapping);
  MapPlan plan;
  GetParam().say(plan, world);
  watched.forget_calls();
  EXPECT_EQ(outcome(plan.validate()), GetParam().outcome);
  EXPECT_EQ(outcome(plan.commit()), GetParam().outcome);
  EXPECT_EQ(watched.names().size(), 0u);
  EXPECT_EQ(describe(world.mapping), before);
}

INSTANTIATE_TEST_SUITE_P(, InvalidPlan, ::testing::ValuesIn(bad_plans),
                         [](const auto& test) { return test.param.what; });

TEST_F(MappingTest, ChunksOfTwoDevicesLieBehindOneStretch) {
  NEEDS_DEVICES(2);
  const PrimaryContext other{1};
  VmmWorld world{driver()};
  ASSERT_OK(world.store.serve(Location::device(1), std::make_shared<LocalBudget>()));
  const ChunkRef neighbour =
      GIVEN_VALUE(world.store.take({world.granule, Location::device(1), Export::No}));
  EXPECT_TRUE(neighbour->location() == Location::device(1));
  MapPlan plan;
  plan.map(world.mapping, 0, world.chunk(), read_write(0).with(1));
  plan.map(world.mapping, world.granule, neighbour, read_write(0).with(1));
  ASSERT_OK(plan.commit());
  fill_pattern(world.address(0), 2 * world.granule, 5);
  expect_pattern(world.address(0), 2 * world.granule, 5);
  expect_true(world.mapping);
}

TEST_F(MappingTest, HostChunksLieBesideDeviceChunks) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  VmmWorld world{driver()};
  const Location host = Location::host(0);
  ASSERT_OK(world.store.serve(host, std::make_shared<LocalBudget>()));
  MapPlan plan;
  plan.map(world.mapping, 0, world.chunk(), read_write());
  plan.map(world.mapping, world.granule,
           GIVEN_VALUE(world.store.take({world.granule, host, Export::No})), read_write());
  ASSERT_OK(plan.commit());
  fill_pattern(world.address(0), 2 * world.granule, 6);
  expect_pattern(world.address(0), 2 * world.granule, 6);
  EXPECT_EQ(world.store.counters(host).physical_in_use, world.granule);
  EXPECT_EQ(world.store.counters(world.here).physical_in_use, world.granule);
  expect_true(world.mapping);
}

}  // namespace
}  // namespace cuvmm::test
