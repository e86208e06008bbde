// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "support/faulty_driver.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {
namespace {

class StoreTest : public VmmTest {};

// Calls back, and records what it was asked for.
class Client final : public ReclaimClient {
 public:
  explicit Client(std::function<Size(Size)> answer = [](Size) { return Size{0}; })
      : answer_(std::move(answer)) {}
  Size reclaim(Size wanted, Location) override {
    asked.push_back(wanted);
    return answer_(wanted);
  }
  std::vector<Size> asked;

 private:
  std::function<Size(Size)> answer_;
};

TEST_F(StoreTest, AFreeChunkIsTakenBeforeANewOneIsMade) {
  FaultyDriver watched{driver()};
  VmmWorld world{watched};
  ChunkRef chunk = world.chunk();
  const auto handle = chunk->handle();
  world.store.give(std::move(chunk));
  watched.forget_calls();
  EXPECT_EQ(world.chunk()->handle(), handle);
  EXPECT_EQ(watched.names().size(), 0u);
}

TEST_F(StoreTest, KindsAreKeptApart) {
  VmmWorld world{driver()};
  world.store.give(world.chunk(2));
  EXPECT_FALSE(world.store.take_free(world.kind(1)));
  EXPECT_FALSE(world.store.take_free({2 * world.granule, world.here, Export::Yes}));
  EXPECT_FALSE(world.store.take_free({2 * world.granule, Location::host(0), Export::No}));
  EXPECT_TRUE(world.store.take_free(world.kind(2)));
}

TEST_F(StoreTest, AnExportableChunkServesAnOrdinaryRequest) {
  VmmWorld world{driver()};
  world.store.give(GIVEN_VALUE(world.store.take({world.granule, world.here, Export::Yes})));
  EXPECT_TRUE(world.store.take_free(world.kind())->exportable());
}

TEST_F(StoreTest, CountersFollowEveryChunk) {
  VmmWorld world{driver()};
  ChunkRef first = world.chunk(1);
  ChunkRef second = world.chunk(3);
  ChunkRef again = second;
  EXPECT_EQ(world.store.counters(world.here).physical_in_use, 4 * world.granule);
  second = {};
  EXPECT_EQ(world.store.counters(world.here).physical_in_use, 4 * world.granule);
  again = {};
  EXPECT_EQ(world.store.counters(world.here).physical_in_use, 1 * world.granule);
  EXPECT_EQ(world.store.counters(world.here).physical_free, 3 * world.granule);
  EXPECT_EQ(world.budget->committed_bytes(), 4 * world.granule);
  world.store.check();
}

TEST_F(StoreTest, KeepsTheLastFreedUpToItsBound) {
  VmmWorld world{driver()};
  ChunkStore store{driver()};
  const auto budget = std::make_shared<LocalBudget>();
  ASSERT_TRUE(store.serve(world.here, budget, 2 * world.granule).ok());
  std::vector<ChunkRef> chunks = GIVEN_VALUE(store.take_many(world.kind(), 4));
  const auto last = chunks.back()->handle();
  chunks.clear();
  EXPECT_EQ(store.counters(world.here).physical_free, 2 * world.granule);
  EXPECT_EQ(budget->committed_bytes(), 2 * world.granule);
  EXPECT_EQ(GIVEN_VALUE(store.take(world.kind()))->handle(), last);
  GIVEN_VALUE(store.take(world.kind(3)));  // larger than all that may be cached
  EXPECT_LE(store.counters(world.here).physical_free, 2 * world.granule);
  store.check();
}

TEST_F(StoreTest, ABudgetWithoutALimitHasNoEnd) {
  LocalBudget budget;
  Commitment right = GIVEN_VALUE(budget.commit(MiB));
  EXPECT_EQ(budget.available(), unlimited);
}

TEST_F(StoreTest, TrimReleasesTheLongestFreeFirst) {
  VmmWorld world{driver()};
  auto chunks = world.chunks({1, 2, 1});
  const auto oldest = chunks[0]->handle();
  for (ChunkRef& chunk : chunks) world.store.give(std::move(chunk));
  EXPECT_EQ(world.store.trim(world.here, 3 * world.granule), world.granule);
  EXPECT_EQ(world.store.counters(world.here).physical_free, 3 * world.granule);
  EXPECT_EQ(world.budget->committed_bytes(), 3 * world.granule);
  EXPECT_NE(world.chunk(1)->handle(), oldest);
  world.store.check();
  EXPECT_EQ(world.store.trim(world.here, 0), 3 * world.granule);
  EXPECT_EQ(world.store.trim(world.here, 0), 0u);
  EXPECT_EQ(world.budget->committed_bytes(), 0u);
  world.store.check();
}

TEST_F(StoreTest, TheLimitHoldsAndTheErrorHasTheFreeBytes) {
  VmmWorld world{driver()};
  world.budget->set_limit(4 * world.granule);
  const auto three = world.chunks({3});
  const auto result = world.store.take(world.kind(2));
  ASSERT_EQ(outcome(result), "out of memory");
  EXPECT_EQ(result.error().asked, 2 * world.granule);
  EXPECT_EQ(result.error().available, world.granule);
  EXPECT_EQ(result.error().driver_code, 0) << "the driver was not asked";
  EXPECT_OK(world.store.take(world.kind(1)));
  world.store.check();
}

TEST_F(StoreTest, FreeChunksOfOtherSizesMakeRoom) {
  VmmWorld world{driver()};
  world.budget->set_limit(4 * world.granule);
  for (ChunkRef& chunk : world.chunks({1, 1, 1, 1})) world.store.give(std::move(chunk));
  EXPECT_EQ(world.store.counters(world.here).physical_free, 4 * world.granule);
  const ChunkRef large = world.chunk(3);
  EXPECT_EQ(world.store.counters(world.here).physical_free, world.granule);
}

TEST_F(StoreTest, WhatIsHeldBeyondTheLimitMakesRoomToo) {
  VmmWorld world{driver()};
  for (ChunkRef& chunk : world.chunks({1, 1, 1, 1})) world.store.give(std::move(chunk));
  world.budget->set_limit(8 * world.granule);
  world.budget->note_native(6 * world.granule);
  EXPECT_EQ(world.budget->excess(), 2 * world.granule);
  const ChunkRef large = world.chunk(2);
  EXPECT_EQ(world.store.counters(world.here).physical_free, 0U);
  EXPECT_EQ(world.budget->excess(), 0U);
}

TEST_F(StoreTest, ManyAreTakenAllOrNone) {
  VmmWorld world{driver()};
  world.budget->set_limit(4 * world.granule);
  EXPECT_EQ(GIVEN_VALUE(world.store.take_many(world.kind(), 4)).size(), 4u);
  EXPECT_EQ(outcome(world.store.take_many(world.kind(), 5)), "out of memory");
  EXPECT_EQ(world.store.counters(world.here).physical_in_use, 0u);
  EXPECT_EQ(GIVEN_VALUE(world.store.take_many(world.kind(), 0)).size(), 0u);
  EXPECT_EQ(outcome(world.store.take_many(world.kind(2), unlimited)), "invalid argument");
  world.store.check();
}

TEST_F(StoreTest, NativeAllocationsCount) {
  VmmWorld world{driver()};
  world.budget->set_limit(4 * world.granule);
  world.budget->note_native(3 * world.granule);
  EXPECT_EQ(world.budget->native_bytes(), 3 * world.granule);
  EXPECT_EQ(outcome(world.store.take(world.kind(2))), "out of memory");
  world.budget->note_native(9 * world.granule);  // it exists, whether it fits or not
  EXPECT_EQ(world.budget->available(), 0u);
  EXPECT_EQ(outcome(world.store.take(world.kind(1))), "out of memory");
  world.budget->forget_native(12 * world.granule);
  EXPECT_OK(world.store.take(world.kind(4)));
}

TEST_F(StoreTest, AnExportedChunkCountsUntilItsEndAndIsNeverReused) {
  VmmWorld world{driver()};
  world.budget->set_limit(2 * world.granule);
  {
    const ChunkRef chunk = GIVEN_VALUE(world.store.take({world.granule, world.here, Export::Yes}));
    EXPECT_EQ(world.store.counters(world.here).physical_exported, 0u);
    (void)GIVEN_VALUE(chunk.export_fd());
    (void)GIVEN_VALUE(chunk.export_fd());
    EXPECT_EQ(world.store.counters(world.here).physical_exported, world.granule);
    EXPECT_EQ(outcome(world.store.take(world.kind(2))), "out of memory");
    // Still mapped although no other reference is left: still counted.
    MapPlan plan;
    plan.map(world.mapping, 0, chunk, read_write());
    ASSERT_OK(plan.commit());
  }
  EXPECT_EQ(world.store.counters(world.here).physical_exported, world.granule);
  MapPlan plan;
  plan.unmap(world.mapping, 0);
  ASSERT_OK(plan.commit());
  EXPECT_EQ(world.store.counters(world.here).physical_exported, 0u);
  EXPECT_EQ(world.store.counters(world.here).physical_free, 0u);
  EXPECT_EQ(world.budget->committed_bytes(), 0u);
  world.store.check();
}

TEST_F(StoreTest, BadRequestsAreTypedErrors) {
  VmmWorld world{driver()};
  const auto take = [&](Size size, Location where) {
    return outcome(world.store.take({size, where, Export::No}));
  };
  EXPECT_EQ(take(0, world.here), "invalid argument");
  EXPECT_EQ(take(world.granule + 1, world.here), "invalid argument");
  EXPECT_EQ(take(unlimited, world.here), "invalid argument");
  EXPECT_EQ(take(1024 * TiB, world.here), "out of memory");
  EXPECT_EQ(take(world.granule, Location::device(63)), "invalid argument");
  EXPECT_EQ(outcome(world.store.serve(world.here, world.budget)), "invalid argument");
  EXPECT_EQ(outcome(world.store.serve(Location::host(0), nullptr)), "invalid argument");
  EXPECT_EQ(world.store.counters(Location::device(63)).physical_in_use, 0u);
  EXPECT_EQ(world.store.trim(Location::device(63), 0), 0u);
  world.store.check();
}

TEST_F(StoreTest, ClientsAreAskedInOrderUntilEnoughIsReclaimed) {
  VmmWorld world{driver()};
  world.budget->set_limit(4 * world.granule);
  std::vector<ChunkRef> held = world.chunks({1, 1, 2});
  std::vector<int> order;
  Client none{[&](Size) {
    order.push_back(1);
    return Size{0};
  }};
  Client some{[&](Size) {
    order.push_back(2);
    held[0] = {};
    held[1] = {};
    return 2 * world.granule;
  }};
  Client spared{[&](Size) {
    order.push_back(3);
    return Size{0};
  }};
  const auto third = world.store.add_client(spared, 20);
  const auto first = world.store.add_client(none, -5);
  const auto second = world.store.add_client(some, 10);
  const ChunkRef taken = GIVEN_VALUE(world.store.take(world.kind(2)));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(none.asked, (std::vector<Size>{2 * world.granule}));
  world.store.check();
}

TEST_F(StoreTest, AReclaimedChunkThatFitsIsTakenDirectly) {
  FaultyDriver watched{driver()};
  VmmWorld world{watched};
  world.budget->set_limit(1 * world.granule);
  ChunkRef held = world.chunk();
  const auto handle = held->handle();
  Client client{[&](Size wanted) {
    held = {};
    return wanted;
  }};
  const auto registration = world.store.add_client(client, 0);
  watched.forget_calls();
  const ChunkRef taken = world.chunk();
  EXPECT_EQ(taken->handle(), handle);
  EXPECT_EQ(watched.names().size(), 0u);
}

TEST_F(StoreTest, TheAskingClientIsNotAsked) {
  VmmWorld world{driver()};
  world.budget->set_limit(world.granule);
  const ChunkRef held = world.chunk();
  Client asker;
  Client other;
  const auto first = world.store.add_client(asker, 0);
  const auto second = world.store.add_client(other, 0);
  EXPECT_EQ(outcome(world.store.take(world.kind(), &asker)), "out of memory");
  EXPECT_EQ(asker.asked.size(), 0u);
  EXPECT_EQ(other.asked.size(), 1u);
}

TEST_F(StoreTest, AClientIsNotAskedAfterItsRegistrationEnds) {
  VmmWorld world{driver()};
  world.budget->set_limit(world.granule);
  const ChunkRef held = world.chunk();
  Client client;
  { const auto registration = world.store.add_client(client, 0); }
  EXPECT_EQ(outcome(world.store.take(world.kind())), "out of memory");
  EXPECT_EQ(client.asked.size(), 0u);
}

TEST_F(StoreTest, ReclaimsWhenTheDriverHasNoMemory) {
  FaultyDriver faulty{driver()};
  VmmWorld world{faulty};
  ChunkRef held = world.chunk(2);
  Client client{[&](Size) {
    held = {};
    return 2 * world.granule;
  }};
  const auto registration = world.store.add_client(client, 0);
  faulty.fail_call(Call::cuMemCreate, 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_OK(world.store.take(world.kind(1)));
  EXPECT_EQ(client.asked, (std::vector<Size>{world.granule}));
  faulty.stop_failing();
  faulty.fail_from(1, CUDA_ERROR_OUT_OF_MEMORY);
  const auto result = world.store.take(world.kind(3));
  faulty.stop_failing();
  ASSERT_EQ(outcome(result), "out of memory");
  EXPECT_EQ(result.error().driver_code, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(result.error().asked, 3 * world.granule);
  world.store.check();
}

TEST_F(StoreTest, ReclaimMakesRoomForOthers) {
  VmmWorld world{driver()};
  for (ChunkRef& chunk : world.chunks({1, 1})) world.store.give(std::move(chunk));
  ChunkRef held = world.chunk(4);
  Client client{[&](Size) {
    held = {};
    return 4 * world.granule;
  }};
  const auto registration = world.store.add_client(client, 0);
  EXPECT_EQ(world.store.reclaim(world.here, world.granule), world.granule);
  EXPECT_EQ(client.asked.size(), 0u);
  EXPECT_GE(world.store.reclaim(world.here, 2 * world.granule), 2 * world.granule);
  EXPECT_EQ(client.asked.size(), 1u);
}

TEST_F(StoreTest, UnreleasedChunksStayCounted) {
  FaultyDriver faulty{driver()};
  VmmWorld world{faulty};
  world.store.give(world.chunk());
  faulty.fail_from(1, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(world.store.trim(world.here, 0), 0u);
  faulty.stop_failing();
  EXPECT_EQ(world.store.counters(world.here).physical_unreleased, world.granule);
  EXPECT_EQ(world.budget->committed_bytes(), world.granule);
  world.store.check();
  world.store.trim(world.here, 0);
  EXPECT_EQ(world.store.counters(world.here).physical_unreleased, 0u);
  EXPECT_EQ(world.budget->committed_bytes(), 0u);
}

TEST_F(StoreTest, ChunksMayOutliveTheirStore) {
  ChunkRef survivor;
  {
    VmmWorld world{driver()};
    world.store.give(world.chunk(2));
    survivor = world.chunk();
  }
  EXPECT_EQ(survivor->size(), granularity());
}

}  // namespace
}  // namespace cuvmm::test
