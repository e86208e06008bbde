// SPDX-License-Identifier: Apache-2.0
#include "vmm/rebind.hpp"

#include "support/faulty_driver.hpp"
#include "support/kernels.hpp"
#include "vmm/give_back.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {
namespace {

class RebindTest : public VmmTest {};

TEST_F(RebindTest, KeepsContentsWhileChunksAndTheirSizesChange) {
  VmmWorld world{driver()};
  const GivenStream stream;
  world.given_mapped(1, {1, 2, 1}, 1);
  fill_pattern(world.address(1), 4 * world.granule, 11);
  const auto smaller_ones_last = world.chunks({3, 1});
  ASSERT_OK(
      rebind(world.mapping, world.stretch(1, 4), smaller_ones_last, Contents::Keep, {stream, 0}));
  expect_pattern(world.address(1), 4 * world.granule, 11);
  EXPECT_EQ(world.mapping.chunk_count(), 2u);
  EXPECT_TRUE(world.mapping.find(world.granule)->chunk == smaller_ones_last[0]);
  expect_true(world.mapping);
}

TEST_F(RebindTest, GivesTheOldChunksBackToTheStore) {
  VmmWorld world{driver()};
  const GivenStream stream;
  world.given_mapped(0, {1, 1}, 1);
  ASSERT_OK(
      rebind(world.mapping, world.stretch(0, 2), world.chunks({2}), Contents::Keep, {stream, 0}));
  const ChunkCounters counters = world.store.counters(world.here);
  EXPECT_EQ(counters.physical_in_use, 2 * world.granule);
  EXPECT_EQ(counters.physical_free, 2 * world.granule);
}

TEST_F(RebindTest, WithoutContentsCopiesNothing) {
  FaultyDriver watched{driver()};
  VmmWorld world{watched};
  world.given_mapped(0, {1, 1}, 1);
  const auto chunks = world.chunks({1, 1});
  watched.forget_calls();
  ASSERT_OK(rebind(world.mapping, world.stretch(0, 2), chunks, Contents::Discard));
  EXPECT_EQ(watched.count_of("cuMemcpyDtoDAsync"), 0u);
  EXPECT_EQ(watched.count_of("cuMemAddressReserve"), 0u);
  EXPECT_EQ(watched.count_of("cuMemUnmap"), 2u);
  EXPECT_EQ(watched.count_of("cuMemMap"), 2u);
  EXPECT_EQ(watched.count_of("cuMemSetAccess"), 1u);
  expect_true(world.mapping);
}

TEST_F(RebindTest, CopiesAWholeStretchAtOnce) {
  FaultyDriver watched{driver()};
  VmmWorld world{watched};
  const GivenStream stream;
  world.given_mapped(0, {1, 1, 2}, 1);
  const auto chunks = world.chunks({2, 1, 1});
  watched.forget_calls();
  ASSERT_OK(rebind(world.mapping, world.stretch(0, 4), chunks, Contents::Keep, {stream, 0}));
  EXPECT_EQ(watched.count_of("cuMemcpyDtoDAsync"), 1u);
  EXPECT_EQ(watched.count_of("cuEventSynchronize"), 1u);
}

TEST_F(RebindTest, LeavesAloneWhatLiesAtItsPlaceAlready) {
  FaultyDriver watched{driver()};
  VmmWorld world{watched};
  const GivenStream stream;
  world.given_mapped(0, {1, 1, 1}, 1);
  fill_pattern(world.address(0), 3 * world.granule, 12);
  std::vector<ChunkRef> chunks{world.mapping.find(0)->chunk, world.chunk(),
                               world.mapping.find(2 * world.granule)->chunk};
  watched.forget_calls();
  ASSERT_OK(rebind(world.mapping, world.stretch(0, 3), chunks, Contents::Keep, {stream, 0}));
  EXPECT_EQ(watched.count_of("cuMemMap"), 2u) << "at the second place, and behind the stretch";
  expect_pattern(world.address(0), 3 * world.granule, 12);
  expect_true(world.mapping);
  watched.forget_calls();
  ASSERT_OK(rebind(world.mapping, world.stretch(0, 3), chunks, Contents::Keep, {stream, 0}));
  EXPECT_EQ(watched.names().size(), 0u);
}

TEST_F(RebindTest, RightsStayWithTheAddresses) {
  VmmWorld world{driver()};
  const GivenStream stream;
  world.given_mapped(0, {1, 1}, 1);
  MapPlan plan;
  plan.allow(world.mapping, world.stretch(1, 1), AccessSet::of(0, Access::Read));
  ASSERT_OK(plan.commit());
  EXPECT_EQ(outcome(rebind(world.mapping, world.stretch(0, 2), world.chunks({2}), Contents::Keep,
                           {stream, 0})),
            "invalid argument");
  ASSERT_OK(rebind(world.mapping, world.stretch(0, 2), world.chunks({1, 1}), Contents::Keep,
                   {stream, 0}));
  EXPECT_EQ(world.mapping.find(0)->access, read_write());
  EXPECT_EQ(world.mapping.find(world.granule)->access, AccessSet::of(0, Access::Read));
  expect_true(world.mapping);
}

TEST_F(RebindTest, WaitsForTheCopyBeforeItReturns) {
  VmmWorld world{driver()};
  const GivenStream stream;
  world.given_mapped(0, {4}, 1);
  fill_pattern(world.address(0), 4 * world.granule, 13);
  ASSERT_OK(rebind(world.mapping, world.stretch(0, 4), world.chunks({2, 2}), Contents::Keep,
                   {stream, 0}));
  EXPECT_CUDA(driver().cuStreamQuery(stream));
  expect_pattern(world.address(0), 4 * world.granule, 13);
}

TEST_F(RebindTest, ACopyUnderWayIsWaitedForThoughItsEventFails) {
  FaultyDriver faulty{driver()};
  VmmWorld world{faulty};
  const GivenStream stream;
  world.given_mapped(0, {1}, 1);
  faulty.forget_calls();
  faulty.fail_call(Call::cuEventRecord, 1, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(outcome(rebind(world.mapping, world.stretch(0, 1), world.chunks({1}), Contents::Keep,
                           {stream, 0})),
            "refused by the driver");
  EXPECT_EQ(faulty.count_of("cuStreamSynchronize"), 1u);
  EXPECT_CUDA(driver().cuStreamQuery(stream));
  expect_true(world.mapping);
}

TEST_F(RebindTest, ACopyThatCannotBeWaitedForKeepsItsMemoryUntilItCan) {
  FaultyDriver faulty{driver()};
  VmmWorld world{faulty};
  const GivenStream stream;
  world.given_mapped(0, {1}, 1);
  const std::string before = describe(world.mapping);
  const auto chunks = world.chunks({1});
  faulty.forget_calls();
  faulty.fail_from(5, CUDA_ERROR_UNKNOWN);  // reserves, maps, allows, copies; no event, no wait
  const auto result =
      rebind(world.mapping, world.stretch(0, 1), chunks, Contents::Keep, {stream, 0});
  EXPECT_EQ(faulty.names()[3], "cuMemcpyDtoDAsync");
  faulty.stop_failing();
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().text().find("may still run"), std::string::npos);
  EXPECT_EQ(faulty.count_of("cuMemUnmap"), 0u);
  EXPECT_EQ(owed(), 1u);
  EXPECT_EQ(settle(), 0u);
  EXPECT_EQ(faulty.count_of("cuMemUnmap"), 1u);
  EXPECT_EQ(describe(world.mapping), before);
  expect_true(world.mapping);
}

TEST_F(RebindTest, BadInputIsATypedErrorBeforeTheDriverIsAsked) {
  FaultyDriver watched{driver()};
  VmmWorld world{watched};
  const GivenStream stream;
  world.given_mapped(0, {1, 2, 1}, 1);
  const auto again = [&](Stretch stretch, std::vector<ChunkRef> chunks, Contents contents) {
    const std::string before = describe(world.mapping);
    watched.forget_calls();
    const auto result = rebind(world.mapping, stretch, std::move(chunks), contents, {stream, 0});
    EXPECT_EQ(watched.names().size(), 0u);
    EXPECT_EQ(describe(world.mapping), before);
    return outcome(result);
  };
  const auto whole = world.stretch(0, 4);
  EXPECT_EQ(again({0, 0}, {}, Contents::Keep), "invalid argument");
  EXPECT_EQ(again(world.stretch(6, 4), world.chunks({4}), Contents::Keep), "invalid argument");
  EXPECT_EQ(again({world.granule, unlimited}, world.chunks({4}), Contents::Keep),
            "invalid argument");
  EXPECT_EQ(again(world.stretch(4, 2), world.chunks({2}), Contents::Keep), "not mapped");
  EXPECT_EQ(again(world.stretch(3, 2), world.chunks({2}), Contents::Discard), "not mapped");
  EXPECT_EQ(again(whole, world.chunks({3}), Contents::Keep), "invalid argument");
  EXPECT_EQ(again(whole, world.chunks({3, 2}), Contents::Keep), "invalid argument");
  EXPECT_EQ(again(whole, {}, Contents::Keep), "invalid argument");
  EXPECT_EQ(again(whole, {ChunkRef{}}, Contents::Keep), "invalid argument");
  EXPECT_EQ(again(world.stretch(0, 2), world.chunks({2}), Contents::Keep), "invalid argument")
      << "part of a chunk";
}

TEST_F(RebindTest, AChunkThatLiesElsewhereTooMayBePutIn) {
  VmmWorld world{driver()};
  world.given_mapped(0, {1, 1}, 1);
  const ChunkRef second = world.mapping.find(world.granule)->chunk;
  ASSERT_OK(rebind(world.mapping, world.stretch(0, 1), {second}, Contents::Discard));
  EXPECT_EQ(read_word(world.address(0)), read_word(world.address(1)));
  expect_true(world.mapping);
}

TEST_F(RebindTest, NoByteMayBeReadAndWrittenByTheSameCopy) {
  VmmWorld world{driver()};
  const GivenStream stream;
  world.given_mapped(0, {1, 1}, 1);
  const ChunkRef first = world.mapping.find(0)->chunk;
  const ChunkRef second = world.mapping.find(world.granule)->chunk;
  const ChunkRef other = world.chunk();
  const auto keep = [&](std::vector<ChunkRef> chunks) {
    return outcome(
        rebind(world.mapping, world.stretch(0, 2), std::move(chunks), Contents::Keep, {stream, 0}));
  };
  EXPECT_EQ(keep({second, first}), "invalid argument");
  EXPECT_EQ(keep({other, other}), "invalid argument");
  EXPECT_OK(rebind(world.mapping, world.stretch(0, 2), {second, first}, Contents::Discard));
  EXPECT_TRUE(world.mapping.find(0)->chunk == second);
  expect_true(world.mapping);
}

TEST_F(RebindTest, TheCopyingDeviceMustBeAllowedToRead) {
  VmmWorld world{driver()};
  const GivenStream stream;
  world.given_mapped(0, {1}, 1);
  MapPlan plan;
  plan.allow(world.mapping, world.stretch(0, 1), AccessSet::none());
  ASSERT_OK(plan.commit());
  EXPECT_EQ(outcome(rebind(world.mapping, world.stretch(0, 1), world.chunks({1}), Contents::Keep,
                           {stream, 0})),
            "invalid argument");
  expect_true(world.mapping);
}

TEST_F(RebindTest, SpillsToTheHostAndComesBack) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  VmmWorld world{driver()};
  const GivenStream stream;
  const Location host = Location::host(0);
  ASSERT_OK(world.store.serve(host, std::make_shared<LocalBudget>()));
  world.given_mapped(0, {1, 1, 2}, 1);
  fill_pattern(world.address(0), 4 * world.granule, 14);
  std::vector<ChunkRef> half_spilled;
  half_spilled.push_back(world.mapping.find(0)->chunk);
  half_spilled.push_back(GIVEN_VALUE(world.store.take({world.granule, host, Export::No})));
  half_spilled.push_back(GIVEN_VALUE(world.store.take({2 * world.granule, host, Export::No})));
  ASSERT_OK(rebind(world.mapping, world.stretch(0, 4), std::move(half_spilled), Contents::Keep,
                   {stream, 0}));
  expect_pattern(world.address(0), 4 * world.granule, 14);
  EXPECT_EQ(world.store.counters(host).physical_in_use, 3 * world.granule);
  expect_true(world.mapping);
  ASSERT_OK(
      rebind(world.mapping, world.stretch(0, 4), world.chunks({4}), Contents::Keep, {stream, 0}));
  expect_pattern(world.address(0), 4 * world.granule, 14);
  EXPECT_EQ(world.store.counters(host).physical_in_use, 0u);
  expect_true(world.mapping);
}

TEST_F(RebindTest, MovesToANeighbour) {
  NEEDS_DEVICES(2);
  VmmWorld world{driver()};
  const GivenStream stream;
  const Location neighbour = Location::device(1);
  ASSERT_OK(world.store.serve(neighbour, std::make_shared<LocalBudget>()));
  world.given_mapped(0, {2}, 1);
  fill_pattern(world.address(0), 2 * world.granule, 15);
  ASSERT_OK(rebind(world.mapping, world.stretch(0, 2),
                   GIVEN_VALUE(world.store.take_many({world.granule, neighbour, Export::No}, 2)),
                   Contents::Keep, {stream, 0}));
  expect_pattern(world.address(0), 2 * world.granule, 15);
  EXPECT_EQ(world.store.counters(neighbour).physical_in_use, 2 * world.granule);
  expect_true(world.mapping);
}

}  // namespace
}  // namespace cuvmm::test
